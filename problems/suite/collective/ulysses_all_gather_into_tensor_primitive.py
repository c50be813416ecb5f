"""All-gather along the first dimension.

Legend: M rows of one rank, N columns, W ranks, s a source rank.

    out[s M + i, :] = x_s[i, :], bit for bit                                     x_s (M, N), out (W M, N)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_gather_cost, element_size
from problems.suite.draws import bit_patterns
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values; in the draw "bits" random bit patterns."""
    shape = (case["M"], 3, case["N"]) if case.draw == "three_dims" else (case["M"], case["N"])
    ranks: list[Args] = []
    for r in range(case.world_size):
        x = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"x": x, "group": None})
    return ranks


def solution(x: torch.Tensor, group: Optional[dist.ProcessGroup] = None) -> torch.Tensor:
    x = x.contiguous()
    W = dist.get_world_size(group)
    if W == 1:
        return x
    out = x.new_empty((W * x.shape[0], *x.shape[1:]))
    dist.all_gather_into_tensor(out, x, group=group)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    whole = torch.cat([a["x"] for a in args])
    return [Expected(Leaf(whole, case.dtype, Exact())) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; M N elements read and W M N written; an all-gather of W M N elements."""
    W, size = len(args), args[0]["x"].numel() * element_size(case.dtype)
    return all_gather_cost(W, W * size, flops={}, hbm=float((W + 1) * size))


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=34,
    slug="ulysses_all_gather_into_tensor_primitive",
    title="All-gather along the first dimension",
    type="collective",
    also=("sequence",),
    domain="llm_training",
    stage="communication",
    origin="Together AI xorl / ByteDance VeOmni ulysses.py: all_gather_into_tensor",
    difficulty=1,
    statement=(
        "Every rank holds `x` (M, N). The result on every rank is one contiguous tensor (W·M, N): the tensors of all "
        "ranks stacked along dimension 0 in rank order, bit for bit. Further dimensions stay as they are. `group` None "
        "means the world group; in a group of one rank the contiguous input itself is the result."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 256},
    check_sizes={"M": 12, "N": 14},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so a block is not a multiple of 16 bytes",
    linear=("x",),
    draws={
        "three_dims": "structured: three dimensions",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    may_alias=("x",),
    communication="all_gather, (M, N) -> (W M, N), over the world group",
    hazards=("Pure data movement: the comparison is bit for bit.",),
)
