"""Tensor all-to-all: scatter one dimension, gather another.

Legend: M rows and N columns of one rank, W ranks, s a source rank, r the own rank.

    out_r[i, s N + j] = x_s[r M/W + i, j]                                 x_s (M, N), out_r (M/W, W N)
    and likewise for any two dimensions: scatter_dim is cut into W pieces, gather_dim grows W-fold
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.draws import bit_patterns
from problems.suite.families.ulysses import scatter_and_gather
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values; the structured draws use other pairs of dimensions."""
    M, N = case["M"], case["N"]
    shape, scatter_dim, gather_dim = (M, N), 0, 1
    if case.draw == "columns":
        shape, scatter_dim, gather_dim = (N, M), 1, 0
    elif case.draw == "three_dims":
        shape, scatter_dim, gather_dim = (3, M, N), 1, 0  # type: ignore[assignment]
    elif case.draw == "last_dims":
        shape, scatter_dim, gather_dim = (2, N, M), 2, 1  # type: ignore[assignment]
    ranks: list[Args] = []
    for r in range(case.world_size):
        x = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"x": x, "scatter_dim": scatter_dim, "gather_dim": gather_dim, "group": None})
    return ranks


def solution(
    x: torch.Tensor,
    scatter_dim: int,
    gather_dim: int,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    if dist.get_world_size(group) == 1:
        return x.contiguous()
    return scatter_and_gather(x, scatter_dim, gather_dim, group)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    whole = torch.cat([a["x"] for a in args], dim=args[0]["gather_dim"])
    pieces = whole.chunk(len(args), dim=args[0]["scatter_dim"])
    return [Expected(Leaf(piece, case.dtype, Exact())) for piece in pieces]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; M N elements read and written; 1/W of them goes to each rank."""
    W, size = len(args), args[0]["x"].numel() * element_size(case.dtype)
    return all_to_all_cost([[size / W] * W for _ in range(W)], flops={}, hbm=[2.0 * size] * W)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("N",), multiple={"M": 24})


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["M"] % world_size == 0:
        return ""
    return f"The world size must divide the rows that are scattered: {sizes['M']} mod {world_size} is not 0."


PROBLEM = Problem(
    id=33,
    slug="ulysses_all_to_all_tensor_primitive",
    title="Tensor all-to-all: scatter one dimension, gather another",
    type="collective",
    also=("sequence",),
    domain="llm_training",
    stage="communication",
    origin="Together AI xorl / ByteDance VeOmni ulysses.py: all_to_all_tensor",
    difficulty=1,
    statement=(
        "Cut `x` along `scatter_dim` into W equal consecutive pieces; piece d goes to rank d. The result is one "
        "contiguous tensor: the W pieces received, concatenated along `gather_dim` in the order of source ranks, bit "
        "for bit. With `scatter_dim` 0 and `gather_dim` 1, (M, N) becomes (M/W, W·N): the own row block of every rank, "
        "side by side. The same rule holds for any two different dimensions of a tensor with any number of them. "
        "`group` None means the world group; in a group of one rank the contiguous input itself is the result."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 512, "N": 256},
    check_sizes={"M": 24, "N": 10},
    hidden_sizes=hidden_sizes,
    hidden_property="N is odd, so no row is a multiple of 16 bytes, and M is a multiple of 24",
    linear=("x",),
    draws={
        "columns": "structured: scatter_dim 1 and gather_dim 0",
        "three_dims": "structured: three dimensions, scatter_dim 1 and gather_dim 0",
        "last_dims": "structured: three dimensions, scatter_dim 2 and gather_dim 1",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    world_size_rule=world_size_rule,
    may_alias=("x",),
    communication="all_to_all of W pieces (M/W, N) over the world group",
    hazards=(
        "Pure data movement: the comparison is bit for bit.",
        "The dimensions are arguments; code for rows and columns of a matrix alone is wrong.",
    ),
)
