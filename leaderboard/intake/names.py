"""What names tell: the problem, backend, sample and step of a file; backend, precision and model of a folder."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from evaluator.contract import Backend, Precision
from problems.models import Problem

_BACKENDS = "|".join(Backend)
_PRECISIONS = "|".join(Precision)
_STEM = re.compile(rf"^(?:(?P<number>\d{{1,5}})(?:_|-|$))?(?P<slug>.*?)(?:[_-](?P<backend>{_BACKENDS}))?$", re.I)
_PLACE = re.compile(r"(?:^|[_./-])(?P<what>sample|step)[_-]?(?P<index>\d{1,4})(?=$|[_./-])", re.I)
_FOLDER = re.compile(
    rf"^solutions?_(?P<backend>{_BACKENDS})_(?P<precision>{_PRECISIONS})_(?P<hardware>[^_]+)_(?P<provider>[^_]+)"
    r"_(?P<model>.+)$",
    re.I,
)


@dataclass(frozen=True)
class Name:
    """What a path says. ``number`` None and ``slug`` "" where it says nothing."""

    number: int | None
    slug: str
    backend: str = ""
    sample: int = 0
    step: int = 0


@dataclass(frozen=True)
class Match:
    """The problem that a name means, with warnings; or None, with a sentence that says what to do."""

    problem: Problem | None
    sentence: str = ""
    warnings: tuple[str, ...] = ()


def parse(path: str) -> Name:
    """Read ``[folders/]<number>_<slug>_<backend>.py``; sample and step may stand in the name or in a folder's name."""
    pure = PurePosixPath(path.replace("\\", "/"))
    places = {m["what"].lower(): int(m["index"]) for m in _PLACE.finditer(str(pure.with_suffix("")))}
    stem = _PLACE.sub("", pure.stem)
    found = _STEM.match(stem)
    if found is None:
        return Name(None, "", "", places.get("sample", 0), places.get("step", 0))
    return Name(
        number=int(found["number"]) if found["number"] else None,
        slug=normalise(found["slug"]),
        backend=(found["backend"] or "").lower(),
        sample=places.get("sample", 0),
        step=places.get("step", 0),
    )


def normalise(slug: str) -> str:
    """Lower case, words joined by single underscores."""
    return re.sub(r"[\s_.-]+", "_", slug.strip().lower()).strip("_")


@dataclass
class Catalogue:
    """The problems of a suite by their names."""

    problems: list[Problem]
    _by_slug: dict[str, Problem] = field(default_factory=dict)
    _by_number: dict[int, Problem] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for problem in self.problems:
            self._by_number[problem.number] = problem
            for alias in problem.aliases:
                self._by_slug.setdefault(normalise(alias), problem)
        # A slug wins over an alias of another problem.
        self._by_slug.update({normalise(problem.slug): problem for problem in self.problems})

    def match(self, name: Name) -> Match:
        """By slug and alias first, by number last: in older sets the numbers are shifted by one from 33 on."""
        problem = self._by_slug.get(name.slug)
        if problem is not None:
            if name.number not in (None, problem.number):
                return Match(problem, warnings=(f"Taken by its name; its number is {problem.number} here.",))
            return Match(problem)
        by_number = self._by_number.get(name.number) if name.number is not None else None
        if by_number is not None and not name.slug:
            return Match(by_number)
        close = difflib.get_close_matches(name.slug, self._by_slug, n=1, cutoff=0.6) if name.slug else []
        nearest = self._by_slug[close[0]] if close else None
        if by_number is not None and nearest in (None, by_number):
            return Match(by_number, warnings=(f"Taken by its number: no problem is called {name.slug}.",))
        return Match(None, self._no_match(name, nearest))

    def _no_match(self, name: Name, nearest: Problem | None) -> str:
        if nearest is not None:
            return f"No problem is called {name.slug}. Did you mean {nearest.number}_{nearest.slug}?"
        called = f"called {name.slug}" if name.slug else "named in it"
        if name.number is not None and not name.slug:
            called = f"number {name.number}"
        return f"No problem of this suite is {called}. Name files <number>_<name>_<backend>.py."


def guesses(paths: Iterable[str]) -> Mapping[str, str]:
    """Backend, precision, hardware, provider and model, if a folder is named by the public convention.

    ``solutions_<backend>_<precision>_<hardware>_<provider>_<model>``; the first such folder counts.
    """
    for path in paths:
        for part in PurePosixPath(path.replace("\\", "/")).parts:
            found = _FOLDER.match(part.removesuffix(".zip"))
            if found:
                values = found.groupdict()
                return {key: v.lower() if key in {"backend", "precision"} else v for key, v in values.items()}
    return {}
