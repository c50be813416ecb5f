"""The outcome of every problem of an evaluation as plain data: what is stored, exported and recomputed from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import exp, fsum, log
from typing import Any, NamedTuple

from leaderboard.scoring.figures import Outcome
from leaderboard.scoring.proportions import wilson


class ProblemOutcome(NamedTuple):
    """What stands for one problem of an evaluation. Stored as a JSON list in this order; new parts come last.

    ``counts``: correct, and neither held nor disqualified nor a duplicate. ``low``: lower end of the speedup's 95 %
    interval. ``samples`` are all files with a verdict about them, of which ``correct_samples`` count as correct and
    ``faster_samples`` are faster as well; more than one in multi-sample runs only.
    """

    code: str
    decision: str
    speedup: float | None
    counts: bool
    low: float | None = None
    utilisation: float | None = None
    compatible_correct: bool = False
    compatible_speedup: float | None = None
    samples: int = 1
    correct_samples: int = 0
    faster_samples: int = 0
    standing: str = "counted"

    def outcome(self, problem: int) -> Outcome:
        """As the scoring functions take it."""
        return Outcome(
            problem=problem,
            correct=self.counts,
            faster=self.counts and self.decision == "faster",
            speedup=self.speedup if self.counts else None,
            low=self.low if self.counts else None,
            utilisation=self.utilisation if self.counts else None,
        )


def read_vector(stored: Mapping[str, Sequence[Any]]) -> dict[int, ProblemOutcome]:
    """Problem number -> outcome, from the stored JSON."""
    return {int(number): ProblemOutcome(*parts) for number, parts in stored.items()}


class ScopeFigures(NamedTuple):
    """The figures that rank a row, over the problems of a part of the suite."""

    problems: int
    correct: int
    faster: int
    correctness_rate: float
    low: float
    high: float
    fast_1: float
    speedup: float


def scope_figures(solved: int, gains: Mapping[int, float], scope: int) -> ScopeFigures:
    """The ranking figures over the problems in ``scope``, from compact data; equal to those of ``type_figures``.

    ``solved`` and ``scope`` are sets of problems as bits. ``gains``: speedup of each problem that is faster.
    """
    n, correct = scope.bit_count(), (solved & scope).bit_count()
    logs = [log(gain) for problem, gain in gains.items() if scope >> problem & 1]
    low, high = wilson(correct, n)
    return ScopeFigures(
        problems=n,
        correct=correct,
        faster=len(logs),
        correctness_rate=correct / n if n else 0.0,
        low=low,
        high=high,
        fast_1=len(logs) / n if n else 0.0,
        speedup=exp(fsum(logs) / n) if n else 1.0,
    )


def gains_of(outcomes: Iterable[Outcome]) -> dict[str, float]:
    """Problem number, as JSON keys are, -> speedup of each answer that is faster."""
    return {str(o.problem): o.speedup for o in outcomes if o.faster and o.speedup is not None}
