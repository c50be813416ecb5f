"""The physics floor: how fast a shape could be on a target at most.

Overlap bound = max over ranks of the overlap bound of ``evaluator.roofline``; serial bound likewise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from evaluator import roofline
from evaluator.contract import Bound, Code
from evaluator.judge.faults import Fault
from evaluator.targets import Peaks
from problems.suite.base import RankCost

IMPOSSIBLE = 1.02
"""A candidate faster than the overlap bound by more than this factor cannot have done the work."""

Limit = Literal["compute", "memory", "link", "latency"]


def bound(costs: Sequence[RankCost], peaks: Peaks) -> Bound | None:
    """The bounds in seconds; None where the peaks are not known well enough to claim one."""
    if not peaks.trustworthy:
        return None
    overlap, serial = 0.0, 0.0
    limited_by: Limit = "latency"
    for cost in costs:
        of_rank = roofline.times(cost.flops, cost.hbm, cost.floor_bytes, peaks)
        if of_rank.overlap > overlap:
            overlap, limited_by = of_rank.overlap, of_rank.limited_by
        serial = max(serial, of_rank.serial)
    return Bound(overlap_seconds=overlap, serial_seconds=serial, limited_by=limited_by, peaks=peaks.origin)


def utilised(limit: Bound, candidate_seconds: float) -> Bound:
    """The bound with the share of it that the candidate reaches: overlap bound / candidate time."""
    return limit.model_copy(update={"utilisation": limit.overlap_seconds / candidate_seconds})


def impossible(limit: Bound, candidate_seconds: float) -> bool:
    """True if the candidate was faster than the overlap bound by more than 2 %.

    Never where the peaks were measured: what a benchmark reached is no limit to what is possible, least of all on a
    CPU, where the inputs of a call may still lie in a cache.
    """
    return limit.peaks == "vendor" and candidate_seconds * IMPOSSIBLE < limit.overlap_seconds


def held(limit: Bound, candidate_seconds: float, target: str) -> Fault:
    """What to raise for an impossible time."""
    return Fault(
        Code.IMPOSSIBLE_TIME,
        f"A call took {candidate_seconds * 1e6:.1f} µs, less than the {limit.overlap_seconds * 1e6:.1f} µs that the "
        f"{limit.limited_by} of {target} needs. The result is held for review.",
        normalised="below the overlap bound",
    )
