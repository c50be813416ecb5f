"""Order and rank of the rows of a board."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from leaderboard.scoring.proportions import mcnemar

RANKING_RULE = (
    "Ordered by correctness rate, then fast_1, then speedup, by point estimates; exactly equal rows share a rank, "
    "earlier first. The range beside a rank comes from exact McNemar tests of correctness over the same problems at "
    "the 5 % level; it never reorders rows. Rule 1.0."
)
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Contender:
    """A row to be ranked. ``correct``: numbers of the problems it solved. ``since`` sorts equal rows, earlier first."""

    key: Hashable
    correctness_rate: float
    fast_1: float
    speedup: float
    correct: frozenset[int]
    since: float

    @property
    def figures(self) -> tuple[float, float, float]:
        return self.correctness_rate, self.fast_1, self.speedup


@dataclass(frozen=True)
class Place:
    """Rank of a row and the ranks that its difference to the others leaves open, ``low`` (better) to ``high``."""

    key: Hashable
    rank: int
    low: int
    high: int


def rank(contenders: Sequence[Contender]) -> list[Place]:
    """Places in the default order. Ties share a rank and leave a gap after it: 1, 2, 2, 4.

    ``low`` is 1 + the number of rows that are significantly better, ``high`` is n minus the number significantly
    worse; both are widened to hold the rank itself, which fast_1 and speedup may have decided.
    """
    ordered = sorted(contenders, key=lambda c: (*(-f for f in c.figures), c.since))
    places: list[Place] = []
    for index, contender in enumerate(ordered):
        tied = index > 0 and contender.figures == ordered[index - 1].figures
        own = places[-1].rank if tied else index + 1
        low, high = _range(contender, ordered)
        places.append(Place(contender.key, own, min(low, own), max(high, own)))
    return places


def _range(contender: Contender, others: Sequence[Contender]) -> tuple[int, int]:
    better = worse = 0
    for other in others:
        gained, lost = len(other.correct - contender.correct), len(contender.correct - other.correct)
        if mcnemar(gained, lost) < SIGNIFICANCE:
            better += gained > lost
            worse += lost > gained
    return 1 + better, len(others) - worse
