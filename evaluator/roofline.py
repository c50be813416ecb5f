"""The communication-aware roofline: what one rank's work takes at least, from plain numbers.

compute = sum over dtypes of flops / peak, memory = bytes / bandwidth, link = bytes in the busier direction / bandwidth
of one direction. With perfect overlap the slowest of the three is all that remains (overlap bound); a kernel that
computes first and communicates afterwards takes max(compute, memory) + link (serial bound). Standard library only: the
judge, the pages and the prompts compute with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

Part = Literal["compute", "memory", "link"]


class Rates(Protocol):
    """Peak rates of one device: flops per second by dtype, bytes per second of memory and of one link direction."""

    @property
    def flops(self) -> Mapping[str, float]: ...
    @property
    def hbm_bytes_per_second(self) -> float: ...
    @property
    def link_bytes_per_second(self) -> float: ...


@dataclass(frozen=True)
class PeakRates:
    """``Rates`` as plain data."""

    flops: Mapping[str, float]
    hbm_bytes_per_second: float
    link_bytes_per_second: float


@dataclass(frozen=True)
class Times:
    """Least seconds of each part of one rank's work."""

    compute: float
    memory: float
    link: float

    @property
    def overlap(self) -> float:
        """Bound with perfect overlap, in seconds."""
        return max(self.compute, self.memory, self.link)

    @property
    def serial(self) -> float:
        """Bound without overlap of communication, in seconds."""
        return max(self.compute, self.memory) + self.link

    @property
    def limited_by(self) -> Part:
        """The part that the overlap bound comes from."""
        parts: dict[Part, float] = {"compute": self.compute, "memory": self.memory, "link": self.link}
        return max(parts, key=lambda part: parts[part])


def times(flops: Mapping[str, float], hbm_bytes: float, link_bytes: float, rates: Rates) -> Times:
    """Times of one rank that does ``flops`` (by dtype) and moves ``link_bytes`` in the busier direction of its link.

    A dtype without a peak counts with the highest one of the device: a floor must not be too high. Raises ValueError
    where a rate that the work needs is unknown.
    """
    if not rates.flops or rates.hbm_bytes_per_second <= 0 or rates.link_bytes_per_second <= 0:
        raise ValueError("no roofline without the peak rates of arithmetic, memory and link")
    fastest = max(rates.flops.values())
    return Times(
        compute=sum(amount / rates.flops.get(dtype, fastest) for dtype, amount in flops.items()),
        memory=hbm_bytes / rates.hbm_bytes_per_second,
        link=link_bytes / rates.link_bytes_per_second,
    )
