"""Scatter of W slices from a source rank.

Legend: M rows, N columns, W ranks, r the own rank, src the source.

    out_r = tensor_src[r], bit for bit        tensor_src (W, M, N), elsewhere tensor (M, N) and unused; out (M, N)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import element_size, gather_cost
from problems.suite.draws import bit_patterns
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values, on the other ranks too, so that returning the own input is noticed; src is rank 0."""
    W, src = case.world_size, case.world_size - 1 if case.draw == "last_source" else 0
    slice_shape = (1 if case.draw == "one_row" else case["M"], case["N"])
    ranks: list[Args] = []
    for r in range(W):
        shape = (W, *slice_shape) if r == src else slice_shape
        x = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"tensor": x, "src": src})
    return ranks


def solution(tensor: torch.Tensor, src: int = 0) -> torch.Tensor:
    if dist.get_rank() == src:
        slices = list(tensor.contiguous().unbind(0))
        out = torch.empty_like(slices[0])
        dist.scatter(out, slices, src=src)
    else:
        out = torch.empty_like(tensor)
        dist.scatter(out, None, src=src)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    whole = args[args[0]["src"]]["tensor"]
    return [Expected(Leaf(whole[r], case.dtype, Exact())) for r in range(len(args))]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; the source reads W slices, every rank writes one; W - 1 slices leave the source."""
    W, src = len(args), args[0]["src"]
    size = float(args[src]["tensor"][0].numel() * element_size(case.dtype))
    hbm = [(W + 1.0) * size if r == src else size for r in range(W)]
    return gather_cost([size] * W, src, flops={}, hbm=hbm, scatters=True)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=5,
    slug="scatter",
    title="Scatter of W slices from a source rank",
    type="collective",
    also=(),
    domain="generic",
    stage="communication",
    origin="torch.distributed primitive",
    difficulty=1,
    statement=(
        "Rank `src` holds `tensor` (W, M, N); the others hold a tensor (M, N) of which only shape and dtype matter. "
        "The result on rank r is a new tensor (M, N): slice r of the source's tensor along the leading axis, bit for "
        "bit. The source keeps slice `src`. Inputs keep their values."
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
    draws={
        "last_source": "structured: the source is the last rank",
        "one_row": "structured: slices of a single row, whose axis must stay",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    reads=lambda rank, peer, world_size: peer == 0,
    communication="scatter of (W, M, N) from src, (M, N) to each rank of the world group",
    hazards=(
        "Pure data movement: the comparison is bit for bit.",
        "The input's shape differs between the source and the others: a symmetric buffer made after `tensor.shape` "
        "has different sizes on different ranks.",
        "Only the slice axis is dropped: a slice of one row stays (1, N).",
    ),
)
