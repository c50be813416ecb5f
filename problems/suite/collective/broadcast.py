"""Broadcast of one tensor from a source rank.

Legend: M rows, N columns, W ranks, src the source.

    out = tensor_src on every rank, bit for bit                                    tensor, out (M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import broadcast_cost, element_size
from problems.suite.draws import bit_patterns
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values on every rank, so that a rank that keeps its own is noticed; the source is rank 0."""
    shape, src = (case["M"], case["N"]), case.world_size - 1 if case.draw == "last_source" else 0
    ranks: list[Args] = []
    for r in range(case.world_size):
        x = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"tensor": x, "src": src})
    return ranks


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    out = tensor.clone()
    dist.broadcast(out, src=src)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return [Expected(Leaf(args[a["src"]]["tensor"], case.dtype, Exact())) for a in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; the source reads its tensor, every rank writes one; a broadcast of M N elements."""
    W, src = case.world_size, args[0]["src"]
    size = float(case["M"] * case["N"] * element_size(case.dtype))
    return broadcast_cost(W, size, src, flops={}, hbm=[2.0 * size if r == src else size for r in range(W)])


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=3,
    slug="broadcast",
    title="Broadcast of one tensor from a source rank",
    type="collective",
    also=(),
    domain="generic",
    stage="communication",
    origin="torch.distributed primitive",
    difficulty=1,
    statement=(
        "Every rank holds `tensor` (M, N) of one shape and dtype. The result on every rank, the source too, is a new "
        "tensor with the values of the tensor of rank `src`, bit for bit. The values of the other ranks do not matter, "
        "and no rank's input may be overwritten."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 512, "N": 512},
    check_sizes={"M": 24, "N": 26},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so neither rows nor equal slices are multiples of 16 bytes",
    linear=("tensor",),
    draws={
        "last_source": "structured: the source is the last rank",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    reads=lambda rank, peer, world_size: peer == 0,
    communication="broadcast of (M, N) from src over the world group",
    hazards=(
        "Pure data movement: the comparison is bit for bit.",
        "The output is a new tensor on the source too; inputs keep their values.",
        "A source that sends to every peer by itself moves W - 1 times as much as it has to.",
    ),
)
