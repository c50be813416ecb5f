"""How fast a problem could be on a target: its cost model against the target's peaks. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluator import roofline
from problems import details
from problems.hardware import Hardware


@dataclass(frozen=True)
class Bound:
    """Bounds at the public shape, for one run dtype on one target."""

    target: str
    dtype: str
    times: roofline.Times


def cost(entry: Mapping[str, Any], *, world_size: int, dtype: str, shape: str) -> Mapping[str, Any] | None:
    """The cost model's row for that world size, dtype and shape ("gpu" or "cpu"); None if there is none."""
    wanted = (shape, world_size, dtype)
    found = (c for c in entry.get("costs", []) if (c["shape"], c["world_size"], c["dtype"]) == wanted)
    return next(found, None)


def bound(entry: Mapping[str, Any], target: Hardware, precision: str) -> Bound | None:
    """Bounds of the most loaded rank in a run of that precision, in the dtype that the problem has there.

    None where the target has no trusted peaks or the problem no such case.

    The manifest holds the largest figure of any rank one by one, so the overlap bound is that of the slowest rank, and
    the serial bound may be slightly above it where different ranks are the most loaded in arithmetic and on the link.
    """
    dtype = details.dtype_of_run(entry, precision)
    work = cost(entry, world_size=target.world_size, dtype=dtype, shape="gpu")
    if target.rates is None or work is None:
        return None
    return Bound(target.name, dtype, roofline.times(work["flops"], work["hbm"], work["floor"], target.rates))


def bounds(entry: Mapping[str, Any], targets: Iterable[Hardware]) -> list[Bound]:
    """Bounds on every target with trusted peaks, in each dtype that the problem has in the target's precisions."""
    found = (bound(entry, target, precision) for target in targets for precision in target.precisions)
    return list(dict.fromkeys(b for b in found if b is not None))
