"""Ulysses exchange: gather the heads, scatter the sequence, after attention.

Legend: B batch, T sequence, H local heads, D head dimension, W ranks, s a source rank, r the own rank,
Tp = W ceil(T/W) the sequence padded with zeros at its end.

    out_r[b, t, s H + h, :] = padded x_s[b, r Tp/W + t, h, :]           x_s (B, T, H, D), out_r (B, Tp/W, W H, D)
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
from problems.suite.families.ulysses import scatter_and_gather
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal values; the structured draws need padding or use other dimensions."""
    B, T, H, D = case["B"], case["T"], case["H"], case["D"]
    if case.draw == "padded":
        T = case.world_size * (T // case.world_size) + 1
    elif case.draw == "short":
        T = 1
    shape: tuple[int, ...] = (B, T, H, D)
    seq_dim, head_dim = 1, 2
    if case.draw == "three_dims":
        shape, seq_dim, head_dim = (B * T, H, D), 0, 1
    elif case.draw == "heads_first":
        shape, seq_dim, head_dim = (B, H, T + 1, D), 2, 1
    ranks: list[Args] = []
    for r in range(case.world_size):
        x = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"x": x, "seq_dim": seq_dim, "head_dim": head_dim, "group": None})
    return ranks


def solution(
    x: torch.Tensor,
    seq_dim: int,
    head_dim: int,
    group: Optional[ProcessGroup] = None,
) -> torch.Tensor:
    missing = -x.shape[seq_dim] % dist.get_world_size(group)
    if missing:
        padding = list(x.shape)
        padding[seq_dim] = missing
        x = torch.cat((x, x.new_zeros(padding)), dim=seq_dim)
    return scatter_and_gather(x, seq_dim, head_dim, group)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W, seq_dim, head_dim = len(args), args[0]["seq_dim"], args[0]["head_dim"]
    heads = torch.cat([a["x"] for a in args], dim=head_dim)
    T = heads.shape[seq_dim]
    shape = list(heads.shape)
    shape[seq_dim] = W * -(-T // W)
    padded = heads.new_zeros(shape)
    padded.narrow(seq_dim, 0, T).copy_(heads)
    return [Expected(Leaf(piece, case.dtype, Exact())) for piece in padded.chunk(W, dim=seq_dim)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; B T H D elements read, B Tp H D written. Zeros of the padding need not travel."""
    W, x, seq_dim = len(args), args[0]["x"], args[0]["seq_dim"]
    T, size = x.shape[seq_dim], x.numel() * element_size(case.dtype)
    block = -(-T // W)
    positions = [min(block, max(0, T - d * block)) for d in range(W)]
    row = size / T
    return all_to_all_cost([[n * row for n in positions]] * W, flops={}, hbm=[size + W * block * row] * W)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B", "T", "H", "D"))


PROBLEM = Problem(
    id=37,
    slug="ulysses_gather_heads_scatter_seq",
    title="Ulysses exchange: gather heads, scatter sequence (with padding)",
    type="sequence",
    also=(),
    domain="llm_training",
    stage="communication",
    origin="Together AI xorl / ByteDance VeOmni ulysses.py: gather_heads_scatter_seq",
    difficulty=2,
    statement=(
        "Every rank holds the whole sequence for its H heads: `x` (B, T, H, D), `seq_dim` 1 and `head_dim` 2. Where "
        "W does not divide T, zeros are appended at the end of the sequence until it does: Tp positions. The result on "
        "rank r is its slice of the sequence for the heads of all ranks, (B, Tp/W, W·H, D): positions r·Tp/W onwards, "
        "the heads concatenated in rank order, bit for bit; the zeros of the padding stay in the results of the last "
        "ranks. The same rule holds for any two dimensions, for example 0 and 1 of a (T, H, D) tensor. `group` None "
        "means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    cpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    check_sizes={"B": 2, "T": 8, "H": 3, "D": 6},
    hidden_sizes=hidden_sizes,
    hidden_property="all sizes are odd, so the sequence is padded and no piece is a multiple of 16 bytes",
    linear=("x",),
    draws={
        "padded": "structured: the sequence is one longer than a multiple of the world size",
        "short": "structured: a sequence of one position, so that most ranks receive nothing but padding",
        "three_dims": "structured: three dimensions, sequence 0 and heads 1",
        "heads_first": "structured: heads before the sequence, dimensions 1 and 2, with padding",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    communication="all_to_all of W pieces (B, Tp/W, H, D) over the world group",
    hazards=(
        "Sequences that the world size does not divide are padded; at the public shape nothing is.",
        "At the public shape a rank sends less than 512 KiB: latency dominates.",
    ),
)
