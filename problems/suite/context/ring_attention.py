"""Ring attention forward, causal, context parallel.

Legend: B batch, T sequence, S = T/W positions of one rank, H heads, D head dimension, W ranks, r the own rank,
i a query, j a key.

    out_i = sum over j of softmax over j (scale q_i . k_j) v_j             q, k, v, out (B, S, H, D), rank r holds
    over all T keys, scale = softmax_scale or 1/sqrt(D); causal: j <= i    positions r S to (r+1) S - 1
"""

from __future__ import annotations

from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.families.ring_attention import (
    HIDDEN_PROPERTY,
    attended_pairs,
    exact_attention,
    hidden_attention_sizes,
    ring_attention,
    ring_cost,
)
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups


def inputs(case: Case, rng: Rng) -> list[Args]:
    """q and k with standard deviation 1.5, so that attention is peaked; v has a mean that grows with the rank."""
    W = case.world_size
    shape = (case["B"], max(1, case["T"] // W), case["H"], case["D"])
    group = even_and_odd(W) if case.draw == "subgroups" else None
    std = 6.0 if case.draw == "peaked" else 1.5
    ranks: list[Args] = []
    for r in range(W):
        v = scaled_normal(rng, r, shape, case.draw)
        if case.draw not in ("small", "large", "mixed"):
            v = v + 0.5 * (r + 1)
        ranks.append(
            {
                "q": rng.normal(r, shape, std=std).to(case.dtype),
                "k": rng.normal(r, shape, std=1.5).to(case.dtype),
                "v": v.to(case.dtype),
                "softmax_scale": 0.5 * case["D"] ** -0.5 if case.draw == "scale" else None,
                "causal": case.draw != "noncausal",
                "group": group,
            }
        )
    return ranks


def solution(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    return ring_attention(q, k, v, scale, causal, group)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def attention(group: list[Args]) -> list[Expected]:
        q, k, v = (torch.cat([wide(a[name]) for a in group], dim=1) for name in ("q", "k", "v"))
        scale = group[0]["softmax_scale"] or q.shape[-1] ** -0.5
        out, _ = exact_attention(q, k, v, scale, group[0]["causal"])
        return [Expected(Leaf(block, case.dtype)) for block in out.chunk(len(group), dim=1)]

    return by_group(args, attention)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """4 D flops for each pair of a query and a key that it sees; q, k, v and out once.

    Link: keys and values go to the ranks that need them, under the causal mask only to later ones.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        n, causal = len(group), group[0]["causal"]
        B, S, H, D = group[0]["q"].shape
        unit = float(B * S * H * D * element_size(case.dtype))
        ranks = []
        for r in range(n):
            flops = {dtype_name(case.dtype): 4.0 * B * H * D * attended_pairs(n, r, S, causal)}
            ranks.append(ring_cost(n, r, unit, causal, flops=flops, hbm=4.0 * unit))
        return ranks

    return by_group(args, costs)


PROBLEM = Problem(
    id=54,
    slug="ring_attention",
    title="Ring attention forward (causal, context parallel)",
    type="context",
    also=("sequence",),
    domain="llm_training",
    stage="forward",
    origin="zhuzilin/ring-flash-attention, with plain PyTorch attention inside",
    difficulty=3,
    statement=(
        "A sequence of T positions is cut into W equal blocks; rank r holds `q`, `k` and `v` (B, S, H, D) of block r. "
        "The result on every rank is the attention of its own queries to the keys of the **whole** sequence, (B, S, H, "
        "D) in the dtype of `q`: scores scale·(q·k), softmax over all keys, weighted sum of v. With `causal` a query "
        "sees only keys at its own position and before. `softmax_scale` None means D^(-1/2). Scores, softmax and sums "
        "are taken in float32, and the result is rounded once. `group` None means the world group; with a process "
        "group, the sequence lies over its members in the order of their ranks in it."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    cpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    check_sizes={"B": 2, "T": 16, "H": 2, "D": 8},
    hidden_sizes=hidden_attention_sizes,
    hidden_property=HIDDEN_PROPERTY,
    linear=("v",),
    draws={
        "noncausal": "structured: no causal mask",
        "scale": "structured: a softmax scale half of 1/sqrt(D)",
        "subgroups": "structured: two rings, the even ranks and the odd ranks",
        "peaked": "stress: scores four times as large",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e3",
        "mixed": "stress: values with amplitudes from 1e-2 to 1e2",
    },
    skip_draw=lacks_subgroups,
    reads=lambda rank, peer, world_size: peer <= rank,
    communication="W - 1 steps round the ring, each one isend and irecv of k and of v, (B, S, H, D)",
    hazards=(
        "Under the causal mask rank 0 needs nothing from others; what goes wrong in the exchange shows on later ranks.",
        "Causal work grows with the rank: rank W - 1 attends to W blocks, rank 0 to one.",
        "At the public shape a rank holds only 16/W positions: latency dominates.",
        "The ring carries every block to every rank; under the causal mask half of that is not needed.",
    ),
    tolerances={
        torch.float32: Tolerance(units=2e-5, relative=2e-5),
        torch.bfloat16: Tolerance(units=1.7e-2, relative=1.7e-2),
        torch.float16: Tolerance(units=3e-3, relative=3e-3),
    },
)
