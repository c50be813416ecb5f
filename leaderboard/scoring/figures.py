"""Figures of one evaluation. N is always the number of problems of the suite, answered or not."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import exp, fsum, log

# 1.1: verdicts that are held count in no range either, and scores keep the outcome of every problem.
# 1.2: the steps of an agent say what had been spent by then.
SCORING_VERSION = "1.2"
FAST_P_LEVELS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)
BOOTSTRAP_RESAMPLES = 1_000


@dataclass(frozen=True)
class Outcome:
    """What a run achieved on one problem. Ratios are reference time divided by candidate time.

    ``faster``: the decision of the paired comparison. ``low``: lower end of the speedup's 95 % interval, for fast_p at
    other levels than 1. ``speedup`` and ``low`` are None where nothing was timed.
    """

    problem: int
    correct: bool
    faster: bool = False
    speedup: float | None = None
    low: float | None = None
    utilisation: float | None = None

    def __post_init__(self) -> None:
        if self.faster and not (self.correct and self.speedup is not None):
            raise ValueError(f"problem {self.problem}: faster without a correct, timed answer")


@dataclass(frozen=True)
class TypeFigures:
    """Figures over the problems of one type."""

    problems: int
    correct: int
    faster: int
    correctness_rate: float
    fast_1: float
    speedup: float
    speedup_correct_only: float | None
    utilisation: float | None


def geomean(values: Iterable[float]) -> float | None:
    """Geometric mean of positive values; None of none."""
    logs = [log(value) for value in values]
    return exp(fsum(logs) / len(logs)) if logs else None


def faster_than(outcome: Outcome, p: float) -> bool:
    """Whether an outcome is correct and faster than ``p`` times the baseline, by the interval rule.

    At p = 1 it is the protocol's decision itself. At every other level the lower end of the speedup's interval must
    exceed p; below 1 a decision `faster` suffices, so that the curve never rises with p.
    """
    if p == 1.0:
        return outcome.faster
    if p > 1.0:
        return outcome.faster and outcome.low is not None and outcome.low > p
    return outcome.faster or (outcome.correct and outcome.low is not None and outcome.low > p)


def fast_p(outcomes: Sequence[Outcome], n: int, levels: Sequence[float] = FAST_P_LEVELS) -> list[tuple[float, float]]:
    """(p, share of all ``n`` problems that are correct and faster than p) for each level."""
    return [(p, sum(faster_than(o, p) for o in outcomes) / n if n else 0.0) for p in levels]


def contribution(outcome: Outcome) -> float:
    """ln of what a user gains from the answer: its speedup where faster, else 0, since the baseline remains usable."""
    return log(outcome.speedup) if outcome.faster and outcome.speedup is not None else 0.0


def speedup(outcomes: Sequence[Outcome], n: int) -> float:
    """Geomean over all ``n`` problems of the speedup where `faster`, else 1.0. A failure never pays more than a tie."""
    return exp(fsum(contribution(o) for o in outcomes) / n) if n else 1.0


def speedup_interval(outcomes: Sequence[Outcome], n: int) -> tuple[float, float]:
    """95 % interval of ``speedup``: percentile bootstrap over problems, always with the same random numbers.

    It answers how much the figure depends on which problems the suite happens to hold.
    """
    values = [contribution(o) for o in outcomes] + [0.0] * (n - len(outcomes))
    if not any(values):
        return 1.0, 1.0
    means = sorted(fsum(map(values.__getitem__, places)) / n for places in _resamples(n))
    tail = BOOTSTRAP_RESAMPLES // 40
    return exp(means[tail]), exp(means[-tail - 1])


@lru_cache(maxsize=4)
def _resamples(n: int) -> tuple[list[int], ...]:
    """The places of the values of each resample: drawn once, since they are asked for with every verdict."""
    source = random.Random(0)
    return tuple(source.choices(range(n), k=n) for _ in range(BOOTSTRAP_RESAMPLES))


def geomean_correct_only(outcomes: Sequence[Outcome]) -> float | None:
    """Geomean of the speedup over correct, timed answers. Rewards who abstains: shown beside, never ranked."""
    return geomean(o.speedup for o in outcomes if o.correct and o.speedup is not None)


def utilisation(outcomes: Sequence[Outcome]) -> float | None:
    """Geomean of bound / time over correct answers with a bound."""
    return geomean(o.utilisation for o in outcomes if o.correct and o.utilisation)


def by_type(outcomes: Sequence[Outcome], types: Mapping[int, Sequence[str]]) -> dict[str, TypeFigures]:
    """Figures per type. ``types``: problem -> its types, for every problem of the suite.

    Give one type a problem for the view in which each counts once, all types for the other one. A type with problems
    but without answers has its row of zeros.
    """
    members: dict[str, set[int]] = {}
    for problem, names in types.items():
        for name in names:
            members.setdefault(name, set()).add(problem)
    return {
        name: type_figures([o for o in outcomes if o.problem in problems], len(problems))
        for name, problems in sorted(members.items())
    }


def type_figures(outcomes: Sequence[Outcome], n: int) -> TypeFigures:
    """Figures over ``n`` problems, of which ``outcomes`` are those answered."""
    correct, faster = sum(o.correct for o in outcomes), sum(o.faster for o in outcomes)
    return TypeFigures(
        problems=n,
        correct=correct,
        faster=faster,
        correctness_rate=correct / n if n else 0.0,
        fast_1=faster / n if n else 0.0,
        speedup=speedup(outcomes, n),
        speedup_correct_only=geomean_correct_only(outcomes),
        utilisation=utilisation(outcomes),
    )
