"""Order and rank of the rows of a board."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from leaderboard.scoring.proportions import mcnemar

RANKING_RULE = (
    "Ordered by correctness rate, then fast_1, then speedup, by point estimates; exactly equal rows share a rank, "
    "earlier first. The range beside a rank comes from exact McNemar tests of correctness over the same problems at "
    "the 5 % level; it never reorders rows. Rule 1.0."
)
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Contender:
    """A row to be ranked. ``solved``: the problems it solved, as a set of bits. ``since`` sorts equal rows."""

    key: Hashable
    correctness_rate: float
    fast_1: float
    speedup: float
    solved: int
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


def to_bits(problems: Iterable[int]) -> int:
    """A set of problem numbers as one integer: bit k stands for problem k."""
    bits = 0
    for problem in problems:
        bits |= 1 << problem
    return bits


class Ranking:
    """The order of a board, and the place of any row of it.

    Ordering costs one sort. A range costs one intersection with each row whose number of solved problems is neither
    too close for any test nor so far that every test tells the two apart, so that a page of a long board pays for the
    rows that it shows alone.
    """

    def __init__(self, contenders: Iterable[Contender]) -> None:
        self.ordered = sorted(contenders, key=lambda c: (*(-figure for figure in c.figures), c.since))
        self._ranks: list[int] = []
        self._by_count: dict[int, list[int]] = {}
        for index, contender in enumerate(self.ordered):
            tied = index > 0 and contender.figures == self.ordered[index - 1].figures
            self._ranks.append(self._ranks[-1] if tied else index + 1)
            self._by_count.setdefault(contender.solved.bit_count(), []).append(contender.solved)

    def place(self, index: int) -> Place:
        """The place of ``ordered[index]``. Ties share a rank and leave a gap after it: 1, 2, 2, 4.

        ``low`` is 1 + the number of rows that are significantly better, ``high`` is n minus the number significantly
        worse; both are widened to hold the rank itself, which fast_1 and speedup may have decided.
        """
        contender, rank = self.ordered[index], self._ranks[index]
        own = contender.solved.bit_count()
        better = sum(self._apart(contender.solved, other) for other in self._by_count if other > own)
        worse = sum(self._apart(contender.solved, other) for other in self._by_count if other < own)
        return Place(contender.key, rank, min(1 + better, rank), max(len(self.ordered) - worse, rank))

    def places(self, start: int = 0, stop: int | None = None) -> list[Place]:
        """Places of ``ordered[start:stop]``."""
        return [self.place(index) for index in range(len(self.ordered))[start:stop]]

    def _apart(self, solved: int, count: int) -> int:
        """How many of the rows that solve ``count`` problems differ significantly from ``solved``."""
        rows = self._by_count[count]
        needed = overlap_needed(*sorted((solved.bit_count(), count)))
        if needed is None:
            return 0
        if needed == 0:
            return len(rows)
        return sum((solved & other).bit_count() >= needed for other in rows)


@cache
def overlap_needed(fewer: int, more: int) -> int | None:
    """The least number of problems that two rows must both solve to differ significantly in correctness.

    The rows solve ``fewer`` and ``more`` problems. The more they share, the fewer problems are discordant and the
    clearer is the same difference. None: not even sharing all of ``fewer`` is enough.
    """
    if fewer == more or not _significant(fewer, more, fewer):
        return None
    low, high = 0, fewer
    while low < high:
        middle = (low + high) // 2
        if _significant(fewer, more, middle):
            high = middle
        else:
            low = middle + 1
    return low


def _significant(fewer: int, more: int, both: int) -> bool:
    return mcnemar(fewer - both, more - both) < SIGNIFICANCE


def rank(contenders: Sequence[Contender]) -> list[Place]:
    """Places of all rows, in the default order."""
    return Ranking(contenders).places()
