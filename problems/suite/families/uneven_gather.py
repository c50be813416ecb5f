"""Least link traffic of an all-gather whose shares differ in size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """Bytes of one rank: sent and received point-to-point, and what no algorithm can avoid per direction."""

    sent: float
    received: float
    floor: float


def uneven_gather(shares: Sequence[float]) -> list[Link]:
    """``shares[r]`` bytes of rank r go to all ranks.

    A rank receives what it does not have. It gives its own share away once; the W - 2 further copies of everything are
    spread evenly over the ranks. Multicast saves these.
    """
    W, total = len(shares), float(sum(shares))
    if W == 1:
        return [Link(0.0, 0.0, 0.0)]
    relayed = total * (W - 2) / W
    return [Link(own + relayed, total - own, max(total - own, own)) for own in shares]
