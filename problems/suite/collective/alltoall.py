"""All-to-all along the leading axis.

Legend: M rows, N columns, W ranks, s a source, r the own rank.

    out_r[s] = tensor_s[r], bit for bit                                            tensor, out (W, M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.draws import bit_patterns
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values; in the draw "bits" random bit patterns."""
    shape, ranks = (case.world_size, case["M"], case["N"]), range(case.world_size)
    if case.draw == "bits":
        return [{"tensor": bit_patterns(rng, r, shape, case.dtype)} for r in ranks]
    return [{"tensor": rng.normal(r, shape).to(case.dtype)} for r in ranks]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.contiguous()
    out = torch.empty_like(tensor)
    dist.all_to_all_single(out, tensor)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    sent = torch.stack([a["tensor"] for a in args])  # (source, destination, M, N)
    return [Expected(Leaf(sent[:, r], case.dtype, Exact())) for r in range(len(args))]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; W M N elements read and written; every slice but the own one crosses the link."""
    W, size = case.world_size, float(case["M"] * case["N"] * element_size(case.dtype))
    return all_to_all_cost([[size] * W] * W, flops={}, hbm=[2.0 * W * size] * W)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=8,
    slug="alltoall",
    title="All-to-all along the leading axis",
    type="collective",
    also=(),
    domain="generic",
    stage="communication",
    origin="torch.distributed primitive",
    difficulty=1,
    statement=(
        "Every rank holds `tensor` (W, M, N); its slice d along the leading axis goes to rank d. The result on rank r "
        "is a new tensor (W, M, N) whose slice s is slice r of the tensor of rank s, bit for bit; the own slice r "
        "stays at index r."
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
    communication="all_to_all of equal slices along the leading axis, (W, M, N), over the world group",
    hazards=(
        "Pure data movement: the comparison is bit for bit.",
        "Slices are exchanged as (source, destination): no transposition within a slice.",
    ),
)
