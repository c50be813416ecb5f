"""Operands of sharded matrix products whose sums are exact, for the draws that compare bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from problems.suite.base import Rng


def sparse_signs(rng: Rng, rank: int | None, shape: tuple[int, int], *, nonzeros: int) -> torch.Tensor:
    """float32 rows with at most ``nonzeros`` entries of +-1 at random columns, the rest zero."""
    a = torch.zeros(shape)
    picks = rng.integers(rank, 0, shape[1] - 1, (shape[0], nonzeros))
    return a.scatter_(1, picks, 2.0 * rng.integers(rank, 0, 1, picks.shape).float() - 1.0)


def signs(rng: Rng, rank: int | None, shape: Sequence[int]) -> torch.Tensor:
    """float32 entries from {-1, 0, 1}: times up to 32 ``sparse_signs`` a row gives integers of at most 32."""
    return rng.integers(rank, -1, 1, shape).float()
