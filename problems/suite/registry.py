"""Where the problems are: found by folder, imported one at a time, frozen by digest.

A problem is the module ``problems/suite/<type>/<slug>.py``. What the listing needs (id, slug, aliases, type, also,
title, difficulty) is written as literals in its ``PROBLEM = Problem(...)``, so it is read from the source: a listing
imports neither torch nor 87 modules.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from problems.suite.base import Problem

SUITE_VERSION = "1.0"

SUITE = Path(__file__).parent
CALIBRATION = SUITE / "calibration.json"
_PACKAGE = "problems.suite"
_LITERALS = ("id", "slug", "title", "type", "also", "aliases", "difficulty")


@dataclass(frozen=True)
class Entry:
    """What is known of a problem without importing it."""

    id: int
    slug: str
    title: str
    type: str
    difficulty: int
    path: Path
    also: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """Dotted name of the problem's module."""
        return f"{_PACKAGE}.{self.path.parent.name}.{self.path.stem}"

    def as_dict(self) -> dict[str, Any]:
        """For the JSON listing."""
        return {
            "id": self.id,
            "slug": self.slug,
            "title": self.title,
            "type": self.type,
            "also": list(self.also),
            "aliases": list(self.aliases),
            "difficulty": self.difficulty,
        }


@cache
def entries() -> tuple[Entry, ...]:
    """All problems in the order of their ids.

    Raises ValueError for two problems with one id or name, and for a module whose folder or file name disagrees with
    its type or slug.
    """
    found = sorted(filter(None, map(_entry, SUITE.glob("*/*.py"))), key=lambda entry: entry.id)
    names: dict[str, Entry] = {}
    for entry in found:
        if (entry.path.parent.name, entry.path.stem) != (entry.type, entry.slug):
            raise ValueError(f"problem {entry.id} belongs into {entry.type}/{entry.slug}.py, not {entry.path}")
        for name in (str(entry.id), entry.slug, *entry.aliases):
            if name in names:
                raise ValueError(f"{names[name].path} and {entry.path} both answer to {name!r}")
            names[name] = entry
    return tuple(found)


def _entry(path: Path) -> Entry | None:
    """The literals of ``PROBLEM = Problem(...)`` in that module; None for modules without one."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)):
            continue
        if [ast.unparse(target) for target in node.targets] != ["PROBLEM"]:
            continue
        literals = {k.arg: k.value for k in node.value.keywords if k.arg in _LITERALS}
        try:
            return Entry(path=path, **{str(name): ast.literal_eval(value) for name, value in literals.items()})
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: {', '.join(_LITERALS)} must be written as literals ({error})") from error
    return None


def find(name: int | str) -> Entry:
    """The problem with that id, slug or older public name. Raises KeyError with the ids there are."""
    wanted = str(name)
    for entry in entries():
        if wanted in (str(entry.id), entry.slug, *entry.aliases):
            return entry
    known = ", ".join(str(entry.id) for entry in entries())
    raise KeyError(f"no problem {wanted!r} in suite {SUITE_VERSION}; ids: {known}")


def get(name: int | str) -> Problem:
    """The problem with that id, slug or alias; imports only its module. Raises KeyError."""
    module = importlib.import_module(find(name).module)
    problem: Problem = module.PROBLEM
    return problem


def all_problems() -> Iterator[Problem]:
    """Every problem in the order of ids, imported as the iteration comes to it."""
    for entry in entries():
        yield get(entry.id)


def digest(problem: Problem | Entry) -> str:
    """sha256 (64 hex digits) of everything that decides verdicts on the problem.

    Covers the sources of its module, of the suite's modules that it imports, however indirectly, and of the comparison,
    and its entry in the calibration table. Line endings and trailing spaces do not count; anything else makes a new
    version.
    """
    hashed = hashlib.sha256()
    for path in _sources([find(problem.id).path, SUITE / "compare.py"]):
        lines = path.read_text(encoding="utf-8").splitlines()
        text = "\n".join(line.rstrip() for line in lines).strip()
        hashed.update(f"{path.relative_to(SUITE).as_posix()}\n{text}\n\0".encode())
    hashed.update(json.dumps(calibration().get(str(problem.id)), sort_keys=True).encode())
    return hashed.hexdigest()


def calibration() -> dict[str, Any]:
    """The calibration table: problem id as text -> run dtype -> world size -> figures (see check.py)."""
    if not CALIBRATION.exists():
        return {}
    table: dict[str, Any] = json.loads(CALIBRATION.read_text(encoding="utf-8"))["problems"]
    return table


def _sources(modules: list[Path]) -> list[Path]:
    """The modules and every module of the suite that they import, sorted."""
    found: set[Path] = set()
    waiting = list(modules)
    while waiting:
        path = waiting.pop()
        if path not in found:
            found.add(path)
            waiting += imported(path)
    return sorted(found)


@cache
def imported(path: Path) -> tuple[Path, ...]:
    """Files of the suite's modules that the module at ``path`` imports with ``from problems.suite.x import y``."""
    files = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(_PACKAGE + "."):
            files.append(module_file(node.module))
        elif isinstance(node, ast.Import) and any(alias.name.startswith(_PACKAGE) for alias in node.names):
            raise ValueError(f"{path}:{node.lineno}: import names of the suite with 'from {_PACKAGE}.… import …'")
    return tuple(files)


def module_file(module: str) -> Path:
    """File of a module of the suite, e.g. problems.suite.costs. Raises ValueError for packages and other modules."""
    path = SUITE.joinpath(*module.removeprefix(_PACKAGE + ".").split(".")).with_suffix(".py")
    if not path.is_file():
        raise ValueError(f"{module} is not a module of the suite")
    return path
