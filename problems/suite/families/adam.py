"""Adam without weight decay: the step as references write it, and the mathematics in float64."""

from __future__ import annotations

from typing import Tuple

import torch

from problems.suite.base import wide

HYPER = ("lr", "beta1", "beta2", "eps", "step")
"""Arguments that are not tensors, in the order of the signatures."""


def adam(
    p: torch.Tensor,
    g: torch.Tensor,
    m: torch.Tensor,
    v: torch.Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One Adam step, every operation stored in the tensors' dtype; new tensors for parameter and both moments."""
    m = (m * beta1).add_(g, alpha=1.0 - beta1)
    v = (v * beta2).addcmul_(g, g, value=1.0 - beta2)
    corrected_m = m / (1.0 - beta1**step)
    corrected_v = v / (1.0 - beta2**step)
    update = corrected_m / (corrected_v.sqrt() + eps)
    return p + update * -lr, m, v


def true_adam(
    p: torch.Tensor, g: torch.Tensor, m: torch.Tensor, v: torch.Tensor, hyper: dict[str, float]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The same in float64. ``hyper``: lr, beta1, beta2, eps and step, under these names."""
    b1, b2, t = hyper["beta1"], hyper["beta2"], hyper["step"]
    m1 = b1 * wide(m) + (1.0 - b1) * wide(g)
    v1 = b2 * wide(v) + (1.0 - b2) * wide(g).square()
    slope = m1 / (1.0 - b1**t)
    size = (v1 / (1.0 - b2**t)).sqrt() + hyper["eps"]
    return wide(p) - hyper["lr"] * slope / size, m1, v1
