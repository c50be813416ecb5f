"""Ulysses exchange: gather the sequence, scatter the heads, before attention.

Legend: B batch, T local sequence, H heads, D head dimension, W ranks, s a source rank, r the own rank.

    out_r[b, s T + t, h, :] = x_s[b, t, r H/W + h, :]                x_s (B, T, H, D), out_r (B, W T, H/W, D)
    then only the first U positions of the sequence, if U = unpadded_dim_size is neither 0 nor a multiple of W
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist
from torch.distributed import ProcessGroup

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.draws import bit_patterns
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values; the structured draws use the other branches of the definition."""
    W, B, T, H, D = case.world_size, case["B"], case["T"], case["H"], case["D"]
    shape, seq_dim, head_dim, unpadded = (B, T, H, D), 1, 2, 0
    if case.draw == "unpad":
        unpadded = W * T - 1
    elif case.draw == "multiple":
        unpadded = W * (T - 1)
    elif case.draw == "three_dims":
        shape, seq_dim, head_dim = (B * T, H, D), 0, 1  # type: ignore[assignment]
    elif case.draw == "heads_first":
        shape, seq_dim, head_dim = (B, H, T, D), 2, 1
    ranks: list[Args] = []
    for r in range(W):
        x = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"x": x, "seq_dim": seq_dim, "head_dim": head_dim, "group": None, "unpadded_dim_size": unpadded})
    return ranks


def solution(
    x: torch.Tensor,
    seq_dim: int,
    head_dim: int,
    group: Optional[ProcessGroup] = None,
    unpadded_dim_size: int = 0,
) -> torch.Tensor:
    W = dist.get_world_size(group)
    heads = [piece.contiguous() for piece in torch.tensor_split(x, W, dim=head_dim)]
    received = [torch.empty_like(piece) for piece in heads]
    dist.all_to_all(received, heads, group=group)
    out = torch.cat(received, dim=seq_dim)
    if unpadded_dim_size % W != 0:
        out = out.narrow(seq_dim, 0, unpadded_dim_size)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W, seq_dim, head_dim = len(args), args[0]["seq_dim"], args[0]["head_dim"]
    whole = torch.cat([a["x"] for a in args], dim=seq_dim)
    unpadded = args[0]["unpadded_dim_size"]
    length = unpadded if unpadded % W != 0 else whole.shape[seq_dim]
    groups = whole.narrow(seq_dim, 0, length).chunk(W, dim=head_dim)
    return [Expected(Leaf(groups[r], case.dtype, Exact())) for r in range(W)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; B T H D elements read and written; 1/W of them goes to each rank."""
    W, size = len(args), args[0]["x"].numel() * element_size(case.dtype)
    return all_to_all_cost([[size / W] * W for _ in range(W)], flops={}, hbm=[2.0 * size] * W)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B", "T", "D"), keep=("H",))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["H"] % world_size == 0:
        return ""
    return f"The world size must divide the number of heads: {sizes['H']} mod {world_size} is not 0."


PROBLEM = Problem(
    id=36,
    slug="ulysses_gather_seq_scatter_heads",
    title="Ulysses exchange: gather sequence, scatter heads",
    type="sequence",
    also=(),
    domain="llm_training",
    stage="communication",
    origin="Together AI xorl / ByteDance VeOmni ulysses.py: gather_seq_scatter_heads",
    difficulty=2,
    statement=(
        "Every rank holds a slice of the sequence for all heads: `x` (B, T, H, D) with `seq_dim` 1 and `head_dim` 2. "
        "The result on rank r is the whole sequence for head group r, (B, W·T, H/W, D): the pieces of all ranks for "
        "that group, concatenated along the sequence in rank order, bit for bit. If `unpadded_dim_size` is neither 0 "
        "nor a multiple of W, only its first `unpadded_dim_size` positions along the sequence are kept; otherwise "
        "nothing is cut. The same rule holds for any two dimensions, for example 0 and 1 of a (T, H, D) tensor. "
        "`group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    cpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    check_sizes={"B": 2, "T": 3, "H": 8, "D": 6},
    hidden_sizes=hidden_sizes,
    hidden_property="B, T and D are odd, so no piece is a multiple of 16 bytes",
    linear=("x",),
    draws={
        "unpad": "structured: unpadded_dim_size is one less than the gathered sequence",
        "multiple": "structured: unpadded_dim_size is a multiple of the world size, so nothing is cut",
        "three_dims": "structured: three dimensions, sequence 0 and heads 1",
        "heads_first": "structured: heads before the sequence, dimensions 1 and 2",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    world_size_rule=world_size_rule,
    communication="all_to_all of W pieces (B, T, H/W, D) over the world group",
    hazards=(
        "The last argument cuts only where it is not a multiple of the world size.",
        "At the public shape a rank sends less than 512 KiB: latency dominates.",
    ),
)
