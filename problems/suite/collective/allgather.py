"""All-gather of one tensor into a stacked output.

Legend: M rows, N columns, W ranks, q a rank.

    out[q] = tensor_q, bit for bit                                        tensor_q (M, N), out (W, M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_gather_cost, element_size
from problems.suite.draws import bit_patterns
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values; in the draw "bits" random bit patterns."""
    shape, ranks = (case["M"], case["N"]), range(case.world_size)
    if case.draw == "bits":
        return [{"tensor": bit_patterns(rng, r, shape, case.dtype)} for r in ranks]
    return [{"tensor": rng.normal(r, shape).to(case.dtype)} for r in ranks]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    W = dist.get_world_size()
    out = torch.empty((W, *tensor.shape), dtype=tensor.dtype, device=tensor.device)
    # The concatenated view (W * M, N) of the stacked output, because not every backend takes the stacked shape.
    dist.all_gather_into_tensor(out.view(W * tensor.shape[0], *tensor.shape[1:]), tensor.contiguous())
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    stacked = torch.stack([a["tensor"] for a in args])
    return [Expected(Leaf(stacked, case.dtype, Exact())) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; M N elements read and W M N written; an all-gather of W M N elements."""
    W, size = case.world_size, case["M"] * case["N"] * element_size(case.dtype)
    return all_gather_cost(W, W * size, flops={}, hbm=float((W + 1) * size))


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=2,
    slug="allgather",
    title="All-gather of one tensor into a stacked output",
    type="collective",
    also=(),
    domain="generic",
    stage="communication",
    origin="torch.distributed primitive",
    difficulty=1,
    statement=(
        "Every rank holds `tensor` (M, N). The result on every rank is a new tensor (W, M, N) whose slice q along the "
        "leading axis is the tensor of rank q, bit for bit."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 256},
    check_sizes={"M": 24, "N": 26},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so a slice is not a multiple of 16 bytes",
    linear=("tensor",),
    draws={"bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros"},
    communication="all_gather, stacked in rank order, (M, N) -> (W, M, N), over the world group",
    hazards=("Pure data movement: the comparison is bit for bit.",),
)
