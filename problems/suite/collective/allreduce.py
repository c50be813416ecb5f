"""All-reduce (sum) of one tensor.

Legend: M rows, N columns, W ranks, q a rank.

    out[i, j] = sum over q of tensor_q[i, j]                                       tensor_q, out (M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_reduce_cost, element_size
from problems.suite.draws import scaled_normal, small_integers
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal values with standard deviation 0.25 at W = 4, so that the sum's is 0.5 at every world size."""
    shape, ranks = (case["M"], case["N"]), range(case.world_size)
    if case.draw == "exact":
        return [{"tensor": small_integers(rng, r, shape).to(case.dtype)} for r in ranks]
    std = 0.5 / case.world_size**0.5
    return [{"tensor": scaled_normal(rng, r, shape, case.draw, std=std).to(case.dtype)} for r in ranks]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    out = tensor.clone()
    dist.all_reduce(out, op=dist.ReduceOp.SUM)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    total = torch.stack([wide(a["tensor"]) for a in args]).sum(0)
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
    return [Expected(Leaf(total, case.dtype, rule)) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """(W-1)/W M N additions, each rank reducing its slice; input and output once; an all-reduce of M N elements."""
    W, elements = case.world_size, case["M"] * case["N"]
    size = elements * element_size(case.dtype)
    return all_reduce_cost(W, size, flops={"fp32": (W - 1) / W * elements}, hbm=2.0 * size)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=1,
    slug="allreduce",
    title="All-reduce (sum) of one tensor",
    type="collective",
    also=(),
    domain="generic",
    stage="communication",
    origin="torch.distributed primitive",
    difficulty=1,
    statement=(
        "Every rank holds `tensor` (M, N). The result on every rank is the element-wise sum over all ranks of the "
        "world group, a new tensor in the dtype of the input. The order of summation is free; the input keeps its "
        "values."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 512, "N": 256},
    check_sizes={"M": 48, "N": 50},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so neither rows nor equal slices are multiples of 16 bytes",
    linear=("tensor",),
    draws={
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e3",
        "mixed": "stress: rows with amplitudes from 1e-2 to 1e2",
    },
    communication="all_reduce SUM of (M, N) over the world group",
    hazards=(
        "bf16 partial sums rounded at every hop lose precision; fp32 accumulation is welcome.",
        "The input must keep its values.",
    ),
    permutable=True,
    tolerances=calibrated(bf16=1.13e-2, fp16=2e-3),
)
