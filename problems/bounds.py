"""How fast a problem could be on a target: its cost model against the target's peaks. Standard library only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from evaluator import roofline
from problems.hardware import Hardware


@dataclass(frozen=True)
class Bound:
    """Bounds at the public shape, for one run dtype on one target."""

    target: str
    dtype: str
    times: roofline.Times


def cost(details: Mapping[str, Any], *, world_size: int, dtype: str, shape: str) -> Mapping[str, Any] | None:
    """The entry of the cost model for that world size, run dtype and shape ("gpu" or "cpu"); None if there is none."""
    wanted = (shape, world_size, dtype)
    found = (c for c in details.get("costs", []) if (c["shape"], c["world_size"], c["dtype"]) == wanted)
    return next(found, None)


def bound(details: Mapping[str, Any], target: Hardware, dtype: str) -> Bound | None:
    """Bounds of the most loaded rank; None where the target has no trusted peaks or the problem no such case.

    The manifest holds the largest figure of any rank one by one, so the overlap bound is that of the slowest rank, and
    the serial bound may be slightly above it where different ranks are the most loaded in arithmetic and on the link.
    """
    entry = cost(details, world_size=target.world_size, dtype=dtype, shape="gpu")
    if target.rates is None or entry is None:
        return None
    return Bound(target.name, dtype, roofline.times(entry["flops"], entry["hbm"], entry["floor"], target.rates))


def bounds(details: Mapping[str, Any], targets: Iterable[Hardware]) -> list[Bound]:
    """Bounds on every target with trusted peaks, in each of its precisions that the problem has."""
    found = [bound(details, target, dtype) for target in targets for dtype in target.precisions]
    return [entry for entry in found if entry is not None]
