"""Reduce-scatter (sum) along the leading axis.

Legend: M rows of a result, N columns, W ranks, q a rank, r the own rank.

    out_r[i, j] = sum over q of tensor_q[r M + i, j]                               tensor_q (W M, N), out (M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import element_size, reduce_scatter_cost
from problems.suite.draws import scaled_normal, small_integers
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal values with standard deviation 0.25 at W = 4, so that the sum's is 0.5 at every world size."""
    W, shape = case.world_size, (case.world_size * case["M"], case["N"])
    if case.draw == "exact":
        return [{"tensor": small_integers(rng, r, shape).to(case.dtype)} for r in range(W)]
    std = 0.5 / W**0.5
    return [{"tensor": scaled_normal(rng, r, shape, case.draw, std=std).to(case.dtype)} for r in range(W)]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    M = tensor.shape[0] // dist.get_world_size()
    out = tensor.new_empty((M, *tensor.shape[1:]))
    dist.reduce_scatter_tensor(out, tensor.contiguous(), op=dist.ReduceOp.SUM)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    total = torch.stack([wide(a["tensor"]) for a in args]).sum(0)
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
    return [Expected(Leaf(rows, case.dtype, rule)) for rows in total.chunk(len(args))]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """(W-1) M N additions; W M N elements read, M N written; a reduce-scatter of W M N elements."""
    W, elements, e = case.world_size, case["M"] * case["N"], element_size(case.dtype)
    hbm = float((W + 1) * elements * e)
    return reduce_scatter_cost(W, W * elements * e, flops={"fp32": float((W - 1) * elements)}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=7,
    slug="reducescatter",
    title="Reduce-scatter (sum) along the leading axis",
    type="collective",
    also=(),
    domain="generic",
    stage="communication",
    origin="torch.distributed primitive",
    difficulty=1,
    statement=(
        "Every rank holds `tensor` (W·M, N). The result on rank r is a new tensor (M, N) in the dtype of the input: "
        "rows r·M to (r+1)·M - 1 of the element-wise sum over all ranks of the world group. The order of summation is "
        "free; the input keeps its values."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 192, "N": 256},
    check_sizes={"M": 24, "N": 50},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so a rank's slice is not a multiple of 16 bytes",
    linear=("tensor",),
    draws={
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e3",
        "mixed": "stress: rows with amplitudes from 1e-2 to 1e2",
    },
    communication="reduce_scatter SUM along the leading axis, (W·M, N) -> (M, N), over the world group",
    hazards=(
        "Every rank gets another slice of the sum.",
        "bf16 partial sums rounded at every hop lose precision; fp32 accumulation is welcome.",
        "In-switch reduction lowers what a rank receives to M·N elements, not what it sends.",
    ),
    tolerances=calibrated(bf16=1.165e-2, fp16=2e-3),
)
