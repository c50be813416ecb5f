"""The physics floor: how fast the public shape could be on a target at most (background: communication-aware roofline).

For rank r: compute = sum over dtypes of flops / peak, memory = bytes / bandwidth, link = bytes per direction / link
bandwidth. Overlap bound = max over ranks of the largest of the three; serial bound = max over ranks of
max(compute, memory) + link.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from evaluator.contract import Bound
from evaluator.targets import Peaks
from problems.suite.base import RankCost

IMPOSSIBLE = 1.02
"""A candidate faster than the overlap bound by more than this factor cannot have done the work."""

Limit = Literal["compute", "memory", "link", "latency"]


def bound(costs: Sequence[RankCost], peaks: Peaks) -> Bound | None:
    """The bounds in seconds; None where the peaks are not known well enough to claim one.

    An unknown dtype counts with the highest peak of the device: a floor must not be too high.
    """
    if not peaks.trustworthy:
        return None
    fastest = max(peaks.flops.values())
    overlap, serial, limited_by = 0.0, 0.0, "latency"
    for cost in costs:
        parts: dict[str, float] = {
            "compute": sum(flops / peaks.flops.get(dtype, fastest) for dtype, flops in cost.flops.items()),
            "memory": cost.hbm / peaks.hbm_bytes_per_second,
            "link": cost.floor_bytes / peaks.link_bytes_per_second,
        }
        limit = max(parts, key=lambda part: parts[part])
        if parts[limit] > overlap:
            overlap, limited_by = parts[limit], limit
        serial = max(serial, max(parts["compute"], parts["memory"]) + parts["link"])
    limits: dict[str, Limit] = {"compute": "compute", "memory": "memory", "link": "link", "latency": "latency"}
    return Bound(overlap_seconds=overlap, serial_seconds=serial, limited_by=limits[limited_by])


def utilised(limit: Bound, candidate_seconds: float) -> Bound:
    """The bound with the share of it that the candidate reaches: overlap bound / candidate time."""
    return limit.model_copy(update={"utilisation": limit.overlap_seconds / candidate_seconds})


def impossible(limit: Bound, candidate_seconds: float) -> bool:
    """True if the candidate was faster than the overlap bound by more than 2 %."""
    return candidate_seconds * IMPOSSIBLE < limit.overlap_seconds
