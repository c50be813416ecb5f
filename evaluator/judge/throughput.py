"""Calls back to back, as the public benchmark times them: a second figure, for comparability only.

There, 500 calls warm up and 100 are timed as a whole, on inputs that rotate. Here a train of calls follows the timed
calls of a pair, in which both arms have warmed up, on inputs that were not seen before; the judge's clock runs from
letting the job go to the last rank's answer, and the last output of every train is verified in full. A file that knows
the train could still spare work in its other calls, since all its inputs lie there, so nothing rests on this figure but
the line "PKB-compatible"; the decision never does.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass

from evaluator.contract import Throughput
from evaluator.runner.values import aligned

TRAINS = 5
"""Trains of each arm in a comparison: one in each of the first pairs."""
WANTED_CALLS = 100
"""Timed calls of each arm over all trains."""
TRAIN_SECONDS = 0.5
"""About how long one train of the reference may take."""
MIN_CALLS = 3
"""A shorter train says nothing about calls back to back."""
MAX_SETS = 16


@dataclass(frozen=True)
class Plan:
    """One train: how many calls on how many sets of inputs in turn."""

    calls: int
    sets: int


@dataclass(frozen=True)
class Train:
    """What one train of each arm took, in seconds, and how many calls each arm had made before it."""

    calls: int
    warmup: int
    reference: float
    candidate: float


def sets_that_fit(region_bytes: int, sizes: Sequence[int]) -> int:
    """How many of the input sets of these sizes lie in one region side by side, MAX_SETS at most.

    One slot's room stays free: the ring may have to skip the end of the region.
    """
    slot = aligned(max(sizes, default=0))
    return max(0, min(MAX_SETS, len(sizes), region_bytes // max(1, slot) - 1))


def plan(reference_seconds: float, sets: int, *, reusable: bool) -> Plan | None:
    """The next train, from the reference's time alone; None if it would be shorter than MIN_CALLS.

    Its length is drawn within a fifth of what is wanted, so that a file cannot know which call is the last.
    ``reusable``: whether a set may be given twice, which it may not where calls change their inputs.
    """
    wanted = min(WANTED_CALLS / TRAINS, TRAIN_SECONDS / max(reference_seconds, 1e-9))
    calls = round(wanted * (0.8 + 0.4 * secrets.randbelow(1_001) / 1_000))
    if not reusable:
        calls = min(calls, sets)
    calls = max(calls, MIN_CALLS)
    if sets < 1 or (not reusable and sets < calls):
        return None
    return Plan(calls, min(sets, calls))


def summary(trains: Sequence[Train]) -> Throughput | None:
    """Mean seconds per call of both arms over all trains; None if there were none."""
    calls = sum(train.calls for train in trains)
    if not calls:
        return None
    return Throughput(
        warmup_calls=min(train.warmup for train in trains),
        calls=calls,
        verified_calls=len(trains),
        reference_seconds=math.fsum(train.reference for train in trains) / calls,
        candidate_seconds=math.fsum(train.candidate for train in trains) / calls,
    )
