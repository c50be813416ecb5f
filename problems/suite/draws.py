"""Draws that many problems share. All values come from the rank's own stream, or from the shared one for rank None."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from problems.suite.base import Rng

_INT_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def scaled_normal(rng: Rng, rank: int | None, shape: Sequence[int], draw: str, *, std: float = 1.0) -> torch.Tensor:
    """float32 normal values for the usual stress draws.

    "small" and "large" scale by 1e-3 and 1e3; "mixed" gives every row (all axes but the last) an amplitude of 1e-2 to
    1e2; any other draw is plain.
    """
    x = rng.normal(rank, shape, std=std * {"small": 1e-3, "large": 1e3}.get(draw, 1.0))
    if draw == "mixed":
        x = x * 10.0 ** rng.integers(rank, -2, 2, (*shape[:-1], 1))
    return x


def small_integers(rng: Rng, rank: int | None, shape: Sequence[int], *, limit: int = 8) -> torch.Tensor:
    """float32 integers in [-limit, limit]: with limit 8, sums over up to 16 ranks are exact even in bf16."""
    return rng.integers(rank, -limit, limit, shape).to(torch.float32)


def bit_patterns(rng: Rng, rank: int | None, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Random bits read as ``dtype``: NaN payloads, infinities, subnormals, negative zeros; for pure data movement."""
    integer = _INT_OF_SIZE[torch.empty((), dtype=dtype).element_size()]
    limits = torch.iinfo(integer)
    high = min(limits.max, 2**62)
    return rng.integers(rank, limits.min, high, shape).to(integer).view(dtype)


def uneven_split(rng: Rng, rank: int | None, total: int, parts: int) -> list[int]:
    """``total`` cut into ``parts`` sizes that differ by up to a factor of about three."""
    weights = 0.5 + rng.uniform(rank, (parts,)).double()
    bounds = (weights.cumsum(0) / weights.sum() * total).round().to(torch.int64)
    return torch.diff(bounds, prepend=bounds.new_zeros(1)).tolist()
