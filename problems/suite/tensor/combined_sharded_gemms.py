"""Sharded two-layer MLP: all-gather, GEMM with SiLU, GEMM, reduce-scatter.

Legend: M rows (a multiple of W), H hidden, F inner dimension, W ranks, q a rank, r the own rank, M_l = M/W.

    x = [x_0, x_1, ...]                                                    x_q (M, H/W), x (M, H)
    y_r = silu(x @ W1)[r M_l : (r+1) M_l] @ W2, with the own W1, W2        W1 (H, F), W2 (F, H), y (M_l, H)
    silu(h) = h / (1 + exp(-h))
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_to_all_cost, element_size, flops_of
from problems.suite.draws import scaled_normal
from problems.suite.shapes import jitter

INNER = 512


def _rounded_up(size: int, W: int) -> int:
    return (size + W - 1) // W * W


def inputs(case: Case, rng: Rng) -> list[Args]:
    """x standard normal, weights scaled so that h has standard deviation 1 and y 0.6; weights differ over the ranks.

    M and H of the case are rounded up to multiples of W.
    """
    W = case.world_size
    M, H = _rounded_up(case["M"], W), _rounded_up(case["H"], W)
    ranks: list[Args] = []
    for r in range(W):
        x = scaled_normal(rng, r, (M, H // W), case.draw)
        w1 = rng.normal(r, (H, INNER), std=(5.0 if case.draw == "steep" else 1.0) * H**-0.5)
        w2 = rng.normal(r, (INNER, H), std=INNER**-0.5)
        ranks.append({"x_local": x.to(case.dtype), "W1": w1.to(case.dtype), "W2": w2.to(case.dtype)})
    return ranks


def solution(x_local: torch.Tensor, W1: torch.Tensor, W2: torch.Tensor) -> torch.Tensor:
    W, r = dist.get_world_size(), dist.get_rank()
    blocks = [torch.empty_like(x_local) for _ in range(W)]
    dist.all_gather(blocks, x_local.contiguous())
    x = torch.cat(blocks, dim=1)  # (M, H)
    activated = F.silu(torch.matmul(x, W1))  # (M, F)
    rows = x.shape[0] // W
    own = slice(r * rows, (r + 1) * rows)
    # Every rank contributes its own rows only, so the reduction adds zeros to them.
    padded = x.new_zeros((x.shape[0], W2.shape[1]))
    padded[own] = torch.matmul(activated[own], W2)
    y_local = x.new_empty((rows, W2.shape[1]))
    dist.reduce_scatter_tensor(y_local, padded, op=dist.ReduceOp.SUM)
    return y_local


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    x = torch.cat([wide(a["x_local"]) for a in args], dim=1)
    expected = []
    for rows, a in zip(x.chunk(len(args)), args, strict=True):
        h = rows @ wide(a["W1"])
        expected.append(Expected(Leaf((h * torch.sigmoid(h)) @ wide(a["W2"]), case.dtype)))
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """4 M_l H F flops for the own rows, and 4 for each element of the activation; x block, weights and own rows once.

    Link: each rank needs only its own rows of every block: an all-to-all of M_l H/W elements for each pair.
    """
    W, e = case.world_size, element_size(case.dtype)
    M, block = args[0]["x_local"].shape
    H, rows = block * W, M // W
    pair = float(rows * block * e)
    flops = flops_of(case.dtype, products=4.0 * rows * H * INNER, elementwise=4.0 * rows * INNER)
    hbm = float((M * block + 2 * H * INNER + rows * H) * e)
    return all_to_all_cost([[pair] * W] * W, flops=flops, hbm=[hbm] * W)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "H"))


PROBLEM = Problem(
    id=15,
    slug="combined_sharded_gemms",
    title="Sharded two-layer MLP: all-gather, GEMM with SiLU, GEMM, reduce-scatter",
    type="tensor",
    also=("sequence", "collective"),
    domain="llm_training",
    stage="forward",
    origin="two-layer MLP on column-sharded activations",
    difficulty=3,
    statement=(
        "A matrix x (M, H) is split by columns: `x_local` (M, H/W) holds columns r·H/W to (r+1)·H/W - 1 on rank r. "
        "Every rank has weights `W1` (H, F) and `W2` (F, H) of its own, F = 512; they differ over the ranks. The "
        "result on rank r is (M/W, H) in the dtype of the inputs: rows r·M/W to (r+1)·M/W - 1 of silu(x @ W1) @ W2 "
        "with its own weights. Products accumulate in float32. W divides M and H. The reference gathers x, applies "
        "the first layer to all rows, and passes its own rows through a reduce-scatter in which nobody adds anything; "
        "any way of computing the function is allowed."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "H": 256},
    cpu_sizes={"M": 64, "H": 128},
    check_sizes={"M": 26, "H": 48},
    hidden_sizes=hidden_sizes,
    hidden_property="M and H are odd numbers rounded up to multiples of the world size",
    linear=("W2",),
    draws={
        "steep": "stress: first-layer outputs with a standard deviation of 5",
        "small": "stress: x scaled by 1e-3, where SiLU is nearly linear",
        "large": "stress: x scaled by 1e3, where SiLU is nearly a ramp",
        "mixed": "stress: rows of x with amplitudes from 1e-2 to 1e2",
    },
    communication=(
        "all_gather of (M, H/W), concatenated along columns\nreduce_scatter SUM along rows, (M, H) -> (M/W, H), of "
        "which all other ranks' parts are zero"
    ),
    hazards=(
        "Weights differ from rank to rank: splitting F over the ranks is wrong.",
        "Nothing is summed over the ranks, and the first layer is needed for the own rows only: one all-to-all of 1/W "
        "of the data replaces both collectives, and (W-1)/W of the first product can be left out.",
    ),
    tolerances=calibrated(bf16=1.3e-2, fp16=1.6e-3),
)
