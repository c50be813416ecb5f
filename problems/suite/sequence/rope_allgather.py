"""Rotary embedding on sequence shards of q and k, then all-gather along the sequence.

Legend: B batch, S sequence length of one rank, h heads, D head width (even), W ranks.

    rot(x)[d] = -x[d + D/2] for d < D/2, else x[d - D/2]
    y = x * cos + rot(x) * sin for x = q and x = k, cos and sin the same for every head
    global y = the ranks' y one after the other along the sequence
    x, y (B, S, h, D), cos, sin (B, S, D), global y (B, W S, h, D)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import all_gather_cost, element_size
from problems.suite.draws import scaled_normal
from problems.suite.shapes import jitter

HEADS, D = 8, 64


def inputs(case: Case, rng: Rng) -> list[Args]:
    """q and k normal with standard deviation 0.5; cosines and sines of independent random angles for every d.

    So the halves of cos and of sin differ, as they do not in a rotation, and code that takes them for equal is wrong.
    "exact": cos and sin from {-1, 0, 1}, x integers. "rotation": angles of the usual form, equal in both halves.
    """
    W, B = case.world_size, case["B"]
    S = max(1, case["T"] // W)
    shape = (B, S, HEADS, D)
    ranks: list[Args] = []
    for r in range(W):
        if case.draw == "exact":
            q, k = (rng.integers(r, -64, 64, shape).float() for _ in range(2))
            cos, sin = (rng.integers(r, -1, 1, (B, S, D)).float() for _ in range(2))
        else:
            q, k = (scaled_normal(rng, r, shape, case.draw, std=0.5) for _ in range(2))
            theta = _angles(case.draw, rng, r, (B, S, D))
            cos, sin = theta.cos(), theta.sin()
        tensors = {"q_local": q, "k_local": k, "cos_local": cos, "sin_local": sin}
        ranks.append({name: x.to(case.dtype) for name, x in tensors.items()})
    return ranks


def _angles(draw: str, rng: Rng, rank: int, shape: tuple[int, int, int]) -> torch.Tensor:
    """Independent angles; in the draw "rotation" positions times 10000^(-2d/D), the second half like the first."""
    if draw != "rotation":
        return 2 * math.pi * rng.uniform(rank, shape)
    position = rng.integers(rank, 0, 4096, (shape[0], 1, 1)) + torch.arange(shape[1])[:, None]
    frequency = 10000.0 ** (-torch.arange(0, D, 2) / D)
    return (position * frequency).repeat(1, 1, 2)


def rotate_half(x: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, dim=-1)
    return torch.cat((-second, first), dim=-1)


def solution(
    q_local: torch.Tensor, k_local: torch.Tensor, cos_local: torch.Tensor, sin_local: torch.Tensor
) -> Tuple[torch.Tensor, torch.Tensor]:
    cos, sin = cos_local.unsqueeze(2), sin_local.unsqueeze(2)  # (B, S, 1, D)
    gathered = []
    for x in (q_local, k_local):
        rotated = x * cos + rotate_half(x) * sin
        shards = [torch.empty_like(rotated) for _ in range(dist.get_world_size())]
        dist.all_gather(shards, rotated)
        gathered.append(torch.cat(shards, dim=1))
    return gathered[0], gathered[1]


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
    cos, sin = (torch.cat([wide(a[name]) for a in args], dim=1) for name in ("cos_local", "sin_local"))
    leaves = []
    for name in ("q_local", "k_local"):
        low, high = torch.cat([wide(a[name]) for a in args], dim=1).chunk(2, dim=-1)
        (cos_low, cos_high), (sin_low, sin_high) = (t.unsqueeze(2).chunk(2, dim=-1) for t in (cos, sin))
        y = torch.cat((low * cos_low - high * sin_low, high * cos_high + low * sin_high), dim=-1)
        leaves.append(Leaf(y, case.dtype, rule))
    return [Expected(tuple(leaves)) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """3 flops for each rotated element of q and k; own inputs and the whole outputs once; an all-gather of both."""
    W, e = case.world_size, element_size(case.dtype)
    local, angles = args[0]["q_local"].numel(), args[0]["cos_local"].numel()
    hbm = float((2 * local + 2 * angles + 2 * W * local) * e)
    return all_gather_cost(W, 2 * W * local * e, flops={"fp32": 6.0 * local}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B", "T"))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if HEADS % world_size == 0:
        return ""
    return f"The world size must divide the heads: {HEADS} mod {world_size} is not 0."


PROBLEM = Problem(
    id=17,
    slug="rope_allgather",
    title="Rotary embedding on sequence shards of q and k, then all-gather",
    type="sequence",
    also=("context", "collective"),
    domain="llm_training",
    stage="forward",
    origin="rotary form of Hugging Face Transformers apply_rotary_pos_emb (rotate-half), gathered along the sequence",
    difficulty=2,
    statement=(
        "The sequence is split over the ranks: `q_local` and `k_local` (B, S, 8, 64) and the factors `cos_local` and "
        "`sin_local` (B, S, 64) belong to the rank's S positions. With rot(x) = (-second half, first half) along the "
        "last axis, x becomes x·cos + rot(x)·sin for x = q and x = k; the factors are the same for every head. The "
        "result on every rank is the pair (q, k) over the whole sequence, each (B, W·S, 8, 64) in the dtype of the "
        "inputs, the ranks' positions one after the other. The halves of cos and of sin need not agree."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 16, "T": 16},
    cpu_sizes={"B": 4, "T": 32},
    check_sizes={"B": 2, "T": 8},
    hidden_sizes=hidden_sizes,
    hidden_property="B is odd and the sequence length was odd before its remainder by the world size was dropped",
    linear=("q_local", "k_local"),
    draws={
        "rotation": "structured: real rotations, the halves of cos and of sin agree",
        "exact": "stress: small integers, every product and sum is exact: compared bit for bit",
        "small": "stress: q and k scaled by 1e-3",
        "large": "stress: q and k scaled by 1e3",
        "mixed": "stress: rows of q and k with amplitudes from 1e-2 to 1e2",
    },
    world_size_rule=world_size_rule,
    communication=(
        "all_gather of rotated q, (B, S, 8, 64), concatenated along the sequence\nall_gather of rotated k, likewise"
    ),
    hazards=(
        "cos and sin differ in their two halves: code for true rotations is wrong.",
        "Shards arrive rank by rank, but the sequence is the second axis: they must be interleaved per batch entry.",
        "bf16 rounds each product and the sum; one rounding at the end is welcome.",
    ),
)
