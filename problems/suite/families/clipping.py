"""Clipping of gradients by their global norm: helpers of the references, the mathematics in float64, the draws."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from problems.suite.base import Case, Close, Exact, Group, Leaf, Rng, wide
from problems.suite.draws import scaled_normal

NORM_RULE = Close(rms=3e-5)
"""The norm is an fp32 sum of fp32 powers in every run dtype; one number may be off by three times this."""


def sum_of_powers(gradients: Sequence[torch.Tensor | None], p: float, device: torch.device) -> torch.Tensor:
    """Sum of |x|^p over all elements of all tensors, in fp32; a 0-dimensional tensor."""
    total = torch.zeros((), dtype=torch.float32, device=device)
    for gradient in gradients:
        if gradient is not None:
            x = gradient.to(torch.float32)
            # On the CPU vector_norm adds powers other than squares one by one: 1e-4 off after half a million of them.
            total += torch.linalg.vector_norm(x) ** 2 if p == 2.0 else x.abs().pow(p).sum()
    return total


def scale_in_place(gradients: Sequence[torch.Tensor | None], factor: float | torch.Tensor) -> None:
    for gradient in gradients:
        if gradient is not None:
            gradient.mul_(factor)


def gradient(case: Case, rng: Rng, rank: int, shape: Sequence[int]) -> torch.Tensor:
    """Normal values times a scale of the tensor's own, log-uniform in [0.3, 3].

    With equal scales the norm follows from the shapes; with a wider range a rank could vanish beside the others.
    """
    scale = 0.3 * 10.0 ** float(rng.uniform(rank, ()))
    return scaled_normal(rng, rank, shape, case.draw, std=scale).to(case.dtype)


def threshold(case: Case, rng: Rng, norm: float, part: Sequence[int]) -> float:
    """A max_norm that differs clearly from the norm: below it, or above it in the draw "no_clip".

    Where several norms are taken at a time, every other one is left unclipped.
    """
    u = float(rng.uniform(None, ()))
    above = case.draw == "no_clip" or (case.draw in ("subgroups", "no_group") and part[0] % 2 == 1)
    return norm * (2.0 + 3.0 * u if above else 0.2 + 0.4 * u)


def parts(group: Group | None, world_size: int) -> tuple[tuple[int, ...], ...]:
    """The ranks over which one norm is taken; no group means that every rank is alone."""
    return group.partition if group is not None else tuple((r,) for r in range(world_size))


def power(gradients: Sequence[torch.Tensor | None], p: float) -> torch.Tensor:
    """Sum of |x|^p in float64, of the values as they stand in the tensors."""
    values = [wide(g).abs().pow(p).sum() for g in gradients if g is not None]
    return torch.stack(values).sum() if values else torch.zeros((), dtype=torch.float64)


def clipped(
    gradients: Sequence[torch.Tensor | None], norm: torch.Tensor, max_norm: float, dtype: torch.dtype
) -> list[Leaf | None]:
    """The list after the call: times max_norm / norm where the norm is larger, else untouched."""
    clips = bool(norm > max_norm)
    factor = max_norm / norm if clips else torch.ones((), dtype=torch.float64)
    rule = (NORM_RULE if dtype is torch.float32 else Close()) if clips else Exact()
    return [None if g is None else Leaf(wide(g) * factor, dtype, rule) for g in gradients]


def elements(gradients: Sequence[torch.Tensor | None]) -> int:
    return sum(g.numel() for g in gradients if g is not None)
