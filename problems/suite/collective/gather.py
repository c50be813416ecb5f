"""Gather of one tensor per rank to a destination rank.

Legend: M rows, N columns, W ranks, q a rank, dst the destination.

    rank dst:     out[q] = tensor_q, bit for bit                                   tensor_q (M, N), out (W, M, N)
    other ranks:  out = the own tensor                                             out (M, N)
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
    """Standard normal values; the destination is rank 0."""
    shape, dst = (case["M"], case["N"]), case.world_size - 1 if case.draw == "last_destination" else 0
    ranks: list[Args] = []
    for r in range(case.world_size):
        x = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"tensor": x, "dst": dst})
    return ranks


def solution(tensor: torch.Tensor, dst: int = 0) -> torch.Tensor:
    tensor = tensor.contiguous()
    if dist.get_rank() != dst:
        dist.gather(tensor, None, dst=dst)
        return tensor
    out = tensor.new_empty((dist.get_world_size(), *tensor.shape))
    dist.gather(tensor, list(out.unbind(0)), dst=dst)  # every slice of the output receives its rank's tensor
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    stacked = torch.stack([a["tensor"] for a in args])
    values = [stacked if r == a["dst"] else a["tensor"] for r, a in enumerate(args)]
    return [Expected(Leaf(value, case.dtype, Exact())) for value in values]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; tensors read once, W written at the destination, which receives all but its own over the link."""
    W, dst = case.world_size, args[0]["dst"]
    size = float(case["M"] * case["N"] * element_size(case.dtype))
    hbm = [(W + 1.0) * size if r == dst else size for r in range(W)]
    return gather_cost([size] * W, dst, flops={}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=6,
    slug="gather",
    title="Gather of one tensor per rank to a destination rank",
    type="collective",
    also=(),
    domain="generic",
    stage="communication",
    origin="torch.distributed primitive",
    difficulty=1,
    statement=(
        "Every rank holds `tensor` (M, N). On rank `dst` the result is a new tensor (W, M, N) whose slice q along the "
        "leading axis is the tensor of rank q, bit for bit. On every other rank the result is its own input, (M, N), "
        "unchanged; it may be the same tensor."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 512, "N": 512},
    check_sizes={"M": 24, "N": 26},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so a slice is not a multiple of 16 bytes",
    linear=("tensor",),
    draws={
        "last_destination": "structured: the destination is the last rank",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    may_alias=("tensor",),
    reads=lambda rank, peer, world_size: rank in (0, peer),
    communication="gather of (M, N) from every rank of the world group to dst, stacked in rank order",
    hazards=(
        "Pure data movement: the comparison is bit for bit.",
        "The output's shape depends on the rank; only the destination's output needs communication.",
    ),
)
