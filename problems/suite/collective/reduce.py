"""Reduction (sum) of one tensor to a destination rank.

Legend: M rows, N columns, W ranks, q a rank, dst the destination.

    out[i, j] = sum over q of tensor_q[i, j] on rank dst; unspecified elsewhere    tensor_q, out (M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import (
    Args,
    Case,
    Close,
    Exact,
    Expected,
    Free,
    Leaf,
    Problem,
    RankCost,
    Rng,
    Rule,
    calibrated,
    wide,
)
from problems.suite.costs import element_size, reduce_cost
from problems.suite.draws import scaled_normal, small_integers
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal values with standard deviation 0.25 at W = 4, so that the sum's is 0.5 at every world size; dst is 0."""
    W, shape = case.world_size, (case["M"], case["N"])
    dst, std = W - 1 if case.draw == "last_destination" else 0, 0.5 / W**0.5
    ranks: list[Args] = []
    for r in range(W):
        x = small_integers(rng, r, shape) if case.draw == "exact" else scaled_normal(rng, r, shape, case.draw, std=std)
        ranks.append({"tensor": x.to(case.dtype), "dst": dst})
    return ranks


def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    out = tensor.clone()
    dist.reduce(out, dst=dst, op=dist.ReduceOp.SUM)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    total = torch.stack([wide(a["tensor"]) for a in args]).sum(0)
    at_root: Rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
    return [Expected(Leaf(total, case.dtype, at_root if r == a["dst"] else Free())) for r, a in enumerate(args)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """(W-1)/W M N additions, each rank reducing a slice; inputs once, the sum once; a reduction of M N elements."""
    W, dst, elements = case.world_size, args[0]["dst"], case["M"] * case["N"]
    size = float(elements * element_size(case.dtype))
    hbm = [2.0 * size if r == dst else size for r in range(W)]
    return reduce_cost(W, size, dst, flops={"fp32": (W - 1) / W * elements}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=4,
    slug="reduce",
    title="Reduction (sum) of one tensor to a destination rank",
    type="collective",
    also=(),
    domain="generic",
    stage="communication",
    origin="torch.distributed primitive",
    difficulty=1,
    statement=(
        "Every rank holds `tensor` (M, N). On rank `dst` the result is the element-wise sum over all ranks of the "
        "world group, a new tensor in the dtype of the input; the order of summation is free. On the other ranks a "
        "tensor must come back too, but its values are not specified and not compared. Inputs keep their values."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 256},
    check_sizes={"M": 48, "N": 50},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so neither rows nor equal slices are multiples of 16 bytes",
    linear=("tensor",),
    draws={
        "last_destination": "structured: the destination is the last rank",
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e3",
        "mixed": "stress: rows with amplitudes from 1e-2 to 1e2",
    },
    may_alias=("tensor",),
    communication="reduce SUM of (M, N) to dst over the world group",
    hazards=(
        "Only the destination's output counts; elsewhere backends differ (own input, partial sums).",
        "bf16 partial sums rounded at every hop lose precision; fp32 accumulation is welcome.",
        "If every rank sends straight to the destination, its incoming link carries W - 1 tensors instead of one.",
    ),
    tolerances=calibrated(bf16=1.135e-2, fp16=2e-3),
)
