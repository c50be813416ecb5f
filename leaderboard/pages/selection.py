"""What a reader chose on the leaderboard, as one value: the same address always says the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any
from urllib.parse import urlencode

from leaderboard import scoring
from leaderboard.models import Target
from problems.models import Problem, Suite, Type


@dataclass(frozen=True)
class Scope:
    """The problems over which figures and ranks are taken: all of the suite, or those of a type or difficulty."""

    numbers: frozenset[int]
    whole: bool

    @property
    def bits(self) -> int:
        return scoring.to_bits(self.numbers)


@dataclass(frozen=True)
class Selection:
    """The state of the leaderboard. Empty text and None: no such filter. ``columns``: further groups of columns."""

    target: Target | None = None
    suite: Suite | None = None
    track: str = ""
    backend: str = ""
    precision: str = ""
    provenance: str = ""
    weights: str = ""
    type: str = ""
    difficulty: str = ""
    since: date | None = None
    until: date | None = None
    also: bool = False
    columns: tuple[str, ...] = ()
    charts: bool = False
    sort: str = "rank"
    page: int = 1

    def query(self, **changes: Any) -> str:
        """The address of the state with ``changes``, complete: what is a default today may not be one tomorrow."""
        state = replace(self, **changes)
        return urlencode([(name, value) for name, value in state._pairs() if value])

    def _pairs(self) -> list[tuple[str, str]]:
        plain = ("track", "backend", "precision", "provenance", "weights", "type", "difficulty", "since", "until")
        return [
            ("target", self.target.name if self.target else ""),
            ("suite", self.suite.version if self.suite else ""),
            *((name, str(getattr(self, name) or "")) for name in plain),
            ("also", "on" if self.also else ""),
            *(("columns", name) for name in self.columns),
            ("charts", "on" if self.charts else ""),
            ("sort", self.sort if self.sort != "rank" else ""),
            ("page", str(self.page) if self.page > 1 else ""),
        ]

    @property
    def narrowed(self) -> bool:
        """Whether a filter is set that may keep rows away."""
        return any((self.track, self.backend, self.precision, self.provenance, self.weights, self.since, self.until))

    @property
    def scoped(self) -> bool:
        """Whether figures are those of a part of the suite."""
        return bool(self.type or self.difficulty)

    @property
    def scope_label(self) -> str:
        """The part of the suite in words; empty for all of it."""
        parts = [f"type {Type(self.type).label.lower()}"] if self.type else []
        parts += [f"difficulty {self.difficulty}"] if self.difficulty else []
        return " and ".join(parts)

    def scope(self, problems: Sequence[Problem]) -> Scope:
        """The problems of the suite that the selection is about."""
        return Scope(frozenset(p.number for p in problems if self._holds(p)), whole=not self.scoped)

    def _holds(self, problem: Problem) -> bool:
        types = problem.types if self.also else [problem.type]
        return (not self.type or self.type in types) and (
            not self.difficulty or str(problem.difficulty) == self.difficulty
        )
