"""A training step of a two-layer MLP on every rank's own samples: pieces of the references, mathematics, draws, costs.

Legend: C samples of one rank, d_in and d_out features in and out, h hidden units, P parameters, W ranks.
Parameters in their flat order: W1 (h, d_in), b1 (h,), W2 (d_out, h), b2 (d_out,).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import List

import torch
import torch.nn.functional as F

from problems.suite.base import Args, Case, Close, Rng, calibrated, wide
from problems.suite.costs import dtype_name
from problems.suite.families.adam import HYPER

PARAMETERS = ("W1", "b1", "W2", "b2")

# Pieces of the references ---------------------------------------------------------------------------------------------


def flatten(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.cat([x.reshape(-1) for x in tensors])


def unflatten(flat: torch.Tensor, shapes: Sequence[torch.Size]) -> List[torch.Tensor]:
    """Views of consecutive pieces of the flat tensor."""
    pieces = torch.split(flat, [shape.numel() for shape in shapes])
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]


def flat_gradients(X: torch.Tensor, y: torch.Tensor, flat: torch.Tensor, shapes: Sequence[torch.Size]) -> torch.Tensor:
    """Gradient of the mean squared error of the MLP with these parameters, flat like them."""
    with torch.enable_grad():
        W1, b1, W2, b2 = parameters = [p.detach().requires_grad_() for p in unflatten(flat, shapes)]
        hidden = F.relu(F.linear(X, W1, b1))
        loss = F.mse_loss(F.linear(hidden, W2, b2), y)
        return flatten(torch.autograd.grad(loss, parameters))


# The mathematics, in float64 ------------------------------------------------------------------------------------------


def true_gradients(args: Sequence[Args], parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Mean over the ranks of the gradients with respect to W1, b1, W2, b2, written out from the chain rule."""
    W1, b1, W2, b2 = map(wide, parameters)
    sums = [torch.zeros_like(p) for p in (W1, b1, W2, b2)]
    for a in args:
        X, y = wide(a["X_local"]), wide(a["y_local"])
        z = X @ W1.t() + b1
        hidden = z * (z > 0)
        residual = hidden @ W2.t() + b2 - y
        d_out = 2.0 * residual / residual.numel()
        d_z = (d_out @ W2) * (z > 0)
        for total, gradient in zip(sums, (d_z.t() @ X, d_z.sum(0), d_out.t() @ hidden, d_out.sum(0)), strict=True):
            total += gradient
    return [total / len(args) for total in sums]


def hyper(args: Args) -> dict[str, float]:
    return {name: args[name] for name in HYPER}


# Shapes and draws -----------------------------------------------------------------------------------------------------


def samples(case: Case) -> int:
    """C: the smallest number with W C >= M."""
    return math.ceil(max(case["M"], case.world_size) / case.world_size)


def widths(sizes: Mapping[str, int], divisor: int = 1) -> tuple[int, int, int]:
    """d_in, h, d_out; h grows from min(N/2, 512) until ``divisor`` divides P. Raises ValueError where none does."""
    N = sizes["N"]
    d_in, d_out, least = max(16, min(N, 256)), max(8, min(N // 4, 256)), max(32, min(N // 2, 512))
    for h in range(least, least + divisor):
        if (h * (d_in + 1 + d_out) + d_out) % divisor == 0:
            return d_in, h, d_out
    raise ValueError(f"no number of hidden units makes {divisor} divide the parameters of N = {N}")


def divisibility(world_size: int, sizes: Mapping[str, int]) -> str:
    """``world_size_rule`` of problems whose ranks hold a W-th of the parameters each."""
    try:
        widths(sizes, world_size)
    except ValueError:
        _, h, d_out = widths(sizes)
        per_unit = (widths(sizes)[0] + 1) + d_out
        return (
            f"The world size must divide P = h ({per_unit}) + {d_out} for some h >= {h}, "
            f"but for no h is P mod {world_size} = 0."
        )
    return ""


def draw_training(case: Case, rng: Rng, dims: tuple[int, int, int]) -> tuple[list[Args], list[float]]:
    """X, y, parameters of every rank, and the rms of the mean gradient of each parameter tensor.

    Only rank 0's parameters count; the others hold other normal values. Everything is standard normal but y, which has
    the size of the MLP's output, so that gradients are of order one and depend on both. No hidden unit comes nearer to
    the kink of the ReLU than 1e-4 of its standard deviation: there rounding would decide whether a gradient passes.
    """
    d_in, h, d_out = dims
    C = samples(case)
    shapes = ((h, d_in), (h,), (d_out, h), (d_out,))
    drawn = [[rng.normal(r, shape) for shape in shapes] for r in range(case.world_size)]
    if case.draw == "dead":
        drawn[0][0][: h // 4] = 0.0
        drawn[0][1][: h // 4] = -1.0
    ranks: list[Args] = []
    for r, own in enumerate(drawn):
        parameters = [x.to(case.dtype) for x in own]
        root = parameters if r == 0 else [ranks[0][name] for name in PARAMETERS]
        X = _off_the_kink(rng, r, (C, d_in), root[0], root[1])
        y = rng.normal(r, (C, d_out), std=math.sqrt(h * d_in / 2)).to(case.dtype)
        ranks.append({"X_local": X, "y_local": y, **dict(zip(PARAMETERS, parameters, strict=True))})
    gradients = true_gradients(ranks, [ranks[0][name] for name in PARAMETERS])
    return ranks, [float(g.square().mean().sqrt()) for g in gradients]


def _off_the_kink(rng: Rng, rank: int, shape: tuple[int, int], W1: torch.Tensor, b1: torch.Tensor) -> torch.Tensor:
    """Normal samples in the dtype of W1; those with a hidden unit next to zero are drawn again, 50 times at most."""
    X = rng.normal(rank, shape).to(W1.dtype)
    closest = 1e-4 * math.sqrt(shape[1])
    for _ in range(50):
        near = ((wide(X) @ wide(W1).t() + wide(b1)).abs() < closest).any(dim=1)
        if not bool(near.any()):
            break
        X[near] = rng.normal(rank, (int(near.sum()), shape[1])).to(W1.dtype)
    return X


def draw_moments(rng: Rng, rank: int, size: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """First and second moment where gradients have the given sizes: the step changes each by about as much as it is.

    Zero moments would make the first step lr * sign(g), which turns round with the rounding of a small gradient.
    """
    m = 0.1 * size * rng.normal(rank, size.shape)
    v = 1e-3 * size.square() * (0.5 + rng.uniform(rank, size.shape))
    return m.to(dtype), v.to(dtype)


def draw_hyper(case: Case, rng: Rng) -> Args:
    """Learning rate and step such that parameters of order one move by a tenth or more."""
    # After many steps the moments are no longer divided by a small number, and a step is four times as long.
    lr = (0.3 + 0.2 * float(rng.uniform(None, ()))) * (0.25 if case.draw == "late" else 1.0)
    step = 1000 if case.draw == "late" else int(rng.integers(None, 1, 7, ()))
    betas = {"beta1": 0.8, "beta2": 0.99, "eps": 0.5} if case.draw == "betas" else {}
    return {"lr": lr, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, **betas, "step": step}


DRAWS = {
    "dead": "structured: hidden units that are off for every sample, with gradients of exactly zero",
    "late": "structured: step 1000",
    "betas": "structured: other betas and an eps as large as the gradients",
}


TOLERANCES = calibrated(bf16=1.39e-2, fp16=2.5e-3)
ONE_64TH = (
    "An eighth of the samples of one of eight ranks is a 64th of all; the averaged gradients lose little with it, and "
    "the eight stored steps of Adam need the room."
)
"""Why a missing chunk with eight ranks is refused with less than the margin of 3."""
"""Three times what a step with every operation stored in the run dtype costs parameters and first moments."""


def second_moment_rule(dtype: torch.dtype) -> Close:
    """Second moments hold the square of the gradient, and with it twice its relative error."""
    return Close(rms=2.0 * TOLERANCES[dtype].rms)


def training_flops(case: Case, args: Args, updated: float) -> dict[str, float]:
    """4 C d_in h + 6 C h d_out for forward and backward, 15 for each of the ``updated`` parameters."""
    (C, d_in), (d_out, h) = args["X_local"].shape, args["W2"].shape
    flops = {dtype_name(case.dtype): 4.0 * C * d_in * h + 6.0 * C * h * d_out}
    flops["fp32"] = flops.get("fp32", 0.0) + 15.0 * updated
    return flops
