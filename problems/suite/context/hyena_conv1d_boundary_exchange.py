"""Causal depthwise convolution over a zigzag split sequence, with exchange of chunk borders.

Legend: B batch, C channels, L chunk length, K filter taps, W ranks, r the own rank, t a position, j a tap. The sequence
has 2 W chunks; rank r holds chunks r and 2 W - 1 - r.

    p = the last K - 1 elements of the chunk before, then the chunk (zeros before chunk 0)
    y[b, c, t] = sum over j of weight[c, 0, j] p[b, c, t + j]      x, y (B, C, 2 L), weight (C, 1, K) of the own rank
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import element_size
from problems.suite.draws import scaled_normal, small_integers
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal sequence, weights scaled by 1/sqrt(K); every rank has weights of its own."""
    W, B, C, L, K = case.world_size, case["B"], case["C"], case["L"], case["K"]
    if case.draw == "batch":
        B = 3
    elif case.draw == "short":
        L = K - 1
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: list[Args] = []
    for r in range(W):
        if case.draw == "exact":
            x, weight = small_integers(rng, r, (B, C, 2 * L)), rng.integers(r, -2, 2, (C, 1, K)).float()
        else:
            x, weight = scaled_normal(rng, r, (B, C, 2 * L), case.draw), rng.normal(r, (C, 1, K), std=K**-0.5)
        ranks.append({"x": x.to(case.dtype), "weight": weight.to(case.dtype), "group": group})
    return ranks


def solution(x: torch.Tensor, weight: torch.Tensor, group: Optional[dist.ProcessGroup] = None) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    first, second = x.chunk(2, dim=-1)  # chunks r and 2 W - 1 - r
    border = weight.shape[-1] - 1
    tail_first, tail_second = (chunk[..., chunk.shape[-1] - border :].contiguous() for chunk in (first, second))
    # The chunk before the first one lies on the rank before, the one before the second on the rank after.
    before_first = torch.zeros_like(tail_first)
    before_second = torch.empty_like(tail_second)
    transfers = []
    if r > 0:
        transfers.append(dist.P2POp(dist.isend, tail_second, group=group, group_peer=r - 1))
        transfers.append(dist.P2POp(dist.irecv, before_first, group=group, group_peer=r - 1))
    if r < W - 1:
        transfers.append(dist.P2POp(dist.isend, tail_first, group=group, group_peer=r + 1))
        transfers.append(dist.P2POp(dist.irecv, before_second, group=group, group_peer=r + 1))
    else:
        before_second = tail_first  # chunk W - 1 is followed by chunk W on the same rank
    for transfer in dist.batch_isend_irecv(transfers) if transfers else []:
        transfer.wait()
    padded = torch.cat((torch.cat((before_first, first), dim=-1), torch.cat((before_second, second), dim=-1)))
    y = F.conv1d(padded, weight, groups=weight.shape[0])  # both chunks as one batch
    return torch.cat(y.chunk(2), dim=-1)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def convolution(group: list[Args]) -> list[Expected]:
        W = len(group)
        halves = [wide(a["x"]).chunk(2, dim=-1) for a in group]
        sequence = torch.cat([h[0] for h in halves] + [h[1] for h in reversed(halves)], dim=-1)
        rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()
        expected = []
        for r, a in enumerate(group):
            taps = wide(a["weight"])[:, 0]
            filtered = torch.zeros_like(sequence)
            for j in range(taps.shape[1]):
                delay = taps.shape[1] - 1 - j
                filtered[..., delay:] += taps[:, j, None] * sequence[..., : sequence.shape[-1] - delay]
            chunks = filtered.chunk(2 * W, dim=-1)
            expected.append(Expected(Leaf(torch.cat((chunks[r], chunks[2 * W - 1 - r]), dim=-1), case.dtype, rule)))
        return expected

    return by_group(args, convolution)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 K flops for each output; x, weights and result once; K - 1 elements per row to each neighbour there is."""

    def costs(group: list[Args]) -> list[RankCost]:
        W, e = len(group), element_size(case.dtype)
        x, weight = group[0]["x"], group[0]["weight"]
        K = weight.shape[-1]
        border = float(x.shape[0] * x.shape[1] * (K - 1) * e)
        ranks = []
        for r in range(W):
            neighbours = (r > 0) + (r < W - 1)
            flops, hbm = {"fp32": 2.0 * K * x.numel()}, float((2 * x.numel() + weight.numel()) * e)
            ranks.append(RankCost(flops, hbm, neighbours * border, neighbours * border))
        return ranks

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("C", "L"), keep=("B",))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["K"] - 1 <= sizes["L"]:
        return ""
    return f"A chunk must not be shorter than the filter's reach: K - 1 = {sizes['K'] - 1}, L = {sizes['L']}."


PROBLEM = Problem(
    id=71,
    slug="hyena_conv1d_boundary_exchange",
    title="Causal depthwise conv1d over zigzag context-parallel chunks with halo exchange",
    type="context",
    also=("spatial",),
    domain="scientific",
    stage="forward",
    origin="NVIDIA NeMo / Savanna Hyena (Evo 2): exchange of overlapping regions for causal depthwise convolution",
    difficulty=3,
    statement=(
        "A sequence of 2·W chunks of length L is split in a zigzag: rank r holds chunk r in `x[..., :L]` and chunk "
        "2·W-1-r in `x[..., L:]`, `x` (B, C, 2·L). Every rank filters its own two chunks with its own `weight` (C, 1, "
        "K), one filter per channel: y[b, c, t] = Σ_j weight[c, 0, j]·s[b, c, t - (K-1) + j], where s is the whole "
        "sequence and zero before its start, so that tap K-1 meets the current element. The K-1 elements before a "
        "chunk belong to the chunk before, which another rank may hold. The result has the layout of `x`, is "
        "accumulated in float32 and rounded once. `group` None means the world group; with a process group, W counts "
        "its members."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 1, "C": 1024, "L": 1024, "K": 7},
    cpu_sizes={"B": 1, "C": 256, "L": 256, "K": 7},
    check_sizes={"B": 2, "C": 9, "L": 16, "K": 4},
    hidden_sizes=hidden_sizes,
    hidden_property="C and L are odd, and the filter has another number of taps",
    linear=("x",),
    draws={
        "batch": "structured: a batch of three",
        "short": "structured: chunks as long as the filter's reach",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: x scaled by 1e-3",
        "large": "stress: x scaled by 1e3",
        "mixed": "stress: rows of x with amplitudes from 1e-2 to 1e2",
    },
    world_size_rule=world_size_rule,
    skip_draw=lacks_subgroups,
    reads=lambda rank, peer, world_size: abs(rank - peer) <= 1,
    communication=(
        "isend of the last K - 1 elements of the first chunk to rank + 1, irecv from rank - 1, (B, C, K - 1)\nisend of "
        "the last K - 1 elements of the second chunk to rank - 1, irecv from rank + 1, (B, C, K - 1)"
    ),
    hazards=(
        "Weights differ from rank to rank; each filters its own outputs.",
        "First and last rank differ from the others: zeros before chunk 0, and chunk W - 1 borders on chunk W locally.",
        "The border is tiny beside the chunk: time goes into latency and memory traffic.",
    ),
)
