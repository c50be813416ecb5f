"""Causal ring attention layer with tensor parallelism: projections cut by heads, sequence cut over the ring.

Legend: B batch, T sequence, H heads, D head dimension, C = H D features, tp x cp = W grid of ranks, t index in the
tensor-parallel group, c index in the context-parallel group (rank = c tp + t), S = T/cp positions, h = H/tp heads.

    q, k, v = x_c Wqkv_t^T as (B, S, 3, h, D)                      x (B, S, C), Wqkv (3 h D, C), Wo (C, h D)
    ctx = ring attention of q, k, v over the cp ranks with the same t
    out = sum over t of ctx Wo_t^T                                  out (B, S, C)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Group, Leaf, Problem, RankCost, Rng, Tolerance, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.families.ring_attention import (
    HIDDEN_PROPERTY,
    attended_pairs,
    exact_attention,
    hidden_attention_sizes,
    ring_attention,
    ring_cost,
)
from problems.suite.groups import contiguous, members, strided


def _grid(case: Case) -> tuple[int, Group | None, Group | None]:
    """Size of the tensor-parallel groups, and both groups; None stands for the world group."""
    W = case.world_size
    if case.draw == "tensor_only":
        return W, None, contiguous(W, 1)
    if case.draw == "context_only":
        return 1, contiguous(W, 1), None
    tp = min(2, W)
    return tp, contiguous(W, tp), strided(W, tp)


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Tokens with a mean that grows along the sequence; weights that give peaked attention and outputs of order one.

    Tokens depend on the context index only and weights on the tensor index only, as in a real layer.
    """
    tp, tp_group, cp_group = _grid(case)
    cp, H, D = case.world_size // tp, case["H"], case["D"]
    h, C, S = H // tp, H * D, max(1, case["T"] // cp)
    scale = {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
    tokens = [rng.normal(c * tp, (case["B"], S, C)) + 0.5 * c for c in range(cp)]
    weights = []
    for t in range(tp):
        w_qkv = rng.normal(t, (3, h * D, C), std=C**-0.5)
        w_qkv[:2] *= 1.4
        weights.append((w_qkv.flatten(0, 1), rng.normal(t, (C, h * D), std=2.0 * scale * C**-0.5)))
    ranks: list[Args] = []
    for r in range(case.world_size):
        w_qkv, w_o = weights[r % tp]
        ranks.append(
            {
                "hidden_states": tokens[r // tp].to(case.dtype, copy=True),
                "w_qkv": w_qkv.to(case.dtype, copy=True),
                "w_o": w_o.to(case.dtype, copy=True),
                "num_heads": H,
                "softmax_scale": 0.5 * case["D"] ** -0.5 if case.draw == "scale" else None,
                "causal": case.draw != "noncausal",
                "tp_group": tp_group,
                "cp_group": cp_group,
            }
        )
    return ranks


def solution(
    hidden_states: torch.Tensor,
    w_qkv: torch.Tensor,
    w_o: torch.Tensor,
    num_heads: int,
    softmax_scale: Optional[float] = None,
    causal: bool = False,
    tp_group: Optional[dist.ProcessGroup] = None,
    cp_group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    B, S, _ = hidden_states.shape
    heads = num_heads // dist.get_world_size(tp_group)
    q, k, v = F.linear(hidden_states, w_qkv).view(B, S, 3, heads, -1).unbind(2)
    scale = q.shape[-1] ** -0.5 if softmax_scale is None else softmax_scale
    context = ring_attention(q, k, v, scale, causal, cp_group)
    out = F.linear(context.reshape(B, S, -1), w_o)
    dist.all_reduce(out, group=tp_group)
    return out


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W, partial = len(args), {}
    for ring in members(args[0]["cp_group"], W):
        qkv = torch.cat([wide(args[r]["hidden_states"]) @ wide(args[r]["w_qkv"]).T for r in ring], dim=1)
        heads = args[0]["num_heads"] // len(members(args[0]["tp_group"], W)[0])
        q, k, v = qkv.reshape(*qkv.shape[:2], 3, heads, -1).unbind(2)
        scale = args[0]["softmax_scale"] or q.shape[-1] ** -0.5
        context, _ = exact_attention(q, k, v, scale, args[0]["causal"])
        for r, block in zip(ring, context.flatten(2).chunk(len(ring), dim=1), strict=True):
            partial[r] = block @ wide(args[r]["w_o"]).T
    out = {r: sum(partial[p] for p in pair) for pair in members(args[0]["tp_group"], W) for r in pair}
    return [Expected(Leaf(torch.as_tensor(out[r]), case.dtype)) for r in range(W)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """Projections 8 B S C h D flops, attention 4 D for each pair of query and key; tokens, weights and result once.

    Link: keys and values to the ranks of the ring that need them, and an all-reduce of B S C elements over tp ranks.
    No algorithm does with less than either alone: one unit of (B, S, h D) each way in the ring, B S C elements for the
    sum (or the other ranks' weights in its place, where they are smaller).
    """
    W, e = len(args), element_size(case.dtype)
    B, S, C = args[0]["hidden_states"].shape
    width = args[0]["w_o"].shape[1]
    tp, cp = C // width, W * width // C
    result, weights = float(B * S * C * e), 4.0 * C * width * e
    total = 2.0 * (tp - 1) / tp * result
    ranks = []
    for r in range(W):
        c, causal = r // tp, args[0]["causal"]
        flops = 8.0 * B * S * C * width + 4.0 * B * width * attended_pairs(cp, c, S, causal)
        ring = ring_cost(cp, c, float(B * S * width * e), causal, flops={}, hbm=0.0)
        floor = max(ring.floor_bytes, min(result, (tp - 1) * weights) if tp > 1 else 0.0)
        sent, received = ring.sent + total, ring.received + total
        ranks.append(RankCost({dtype_name(case.dtype): flops}, 2 * result + weights, sent, received, one_way=floor))
    return ranks


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    tp = min(2, world_size)
    if world_size % tp == 0 and sizes["H"] % tp == 0:
        return ""
    return f"tp = min(2, W) = {tp} must divide the world size {world_size} and the number of heads {sizes['H']}."


def _reads(rank: int, peer: int, world_size: int) -> bool:
    """Earlier parts of the sequence and the own one, of both tensor indices."""
    tp = min(2, world_size)
    return peer // tp <= rank // tp


def skip_draw(case: Case) -> bool:
    return case.draw == "tensor_only" and case["H"] % case.world_size != 0


PROBLEM = Problem(
    id=55,
    slug="ring_attention_tp",
    title="Causal ring attention layer with tensor parallelism (projections sharded by heads)",
    type="context",
    also=("tensor",),
    domain="llm_training",
    stage="forward",
    origin="zhuzilin/ring-flash-attention, with plain PyTorch attention inside; Megatron-LM tp-cp rank order",
    difficulty=4,
    statement=(
        "The ranks form a grid of tp x cp: `tp_group` holds neighbouring ranks, `cp_group` ranks tp apart. Ranks of "
        "one tp_group hold the same tokens, `hidden_states` (B, S, C), block c of a sequence of cp·S positions; the "
        "ranks of one cp_group hold the same weights, those of h = num_heads/tp heads: `w_qkv` (3·h·D, C) with rows of "
        "q, then k, then v, and `w_o` (C, h·D).\n\nProject to q, k, v (B, S, h, D), take the attention of the own "
        "queries to the keys of the whole sequence (with `causal` only to positions up to their own), project with "
        "`w_o`, and sum over the tp_group: (B, S, C). Scores are scaled by `softmax_scale`, None meaning D^(-1/2). "
        "Scores, softmax and sums of the attention are taken in float32 from q, k, v in the run dtype; everything else "
        "is stored in the run dtype. A group None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 16, "T": 16, "H": 8, "D": 64},
    cpu_sizes={"B": 8, "T": 16, "H": 8, "D": 32},
    check_sizes={"B": 4, "T": 16, "H": 8, "D": 16},
    hidden_sizes=hidden_attention_sizes,
    hidden_property=HIDDEN_PROPERTY,
    linear=("w_o",),
    draws={
        "noncausal": "structured: no causal mask",
        "scale": "structured: a softmax scale half of 1/sqrt(D)",
        "context_only": "structured: cp_group None, one ring of all ranks, and tensor-parallel groups of one rank",
        "tensor_only": "structured: tp_group None, heads over all ranks, and rings of one rank",
        "small": "stress: output projection scaled by 1e-3",
        "large": "stress: output projection scaled by 1e3",
    },
    world_size_rule=world_size_rule,
    skip_draw=skip_draw,
    replicated=("hidden_states", "w_qkv", "w_o"),
    reads=_reads,
    communication=(
        "cp - 1 steps round the cp_group's ring, each one isend and irecv of k and of v, (B, S, h, D)\nall_reduce SUM "
        "of (B, S, C) over the tp_group"
    ),
    hazards=(
        "Group indices are not global ranks: peers of the ring are tp apart.",
        "At W = 2 the ring has one rank; at the public shape latency dominates.",
        "Softmax and merging of blocks run in float32 from q, k, v in the run dtype.",
    ),
    tolerances={
        torch.float32: Tolerance(units=5e-5, relative=2e-5),
        torch.bfloat16: Tolerance(units=7.5e-2, relative=8e-3),
        torch.float16: Tolerance(units=1e-2, relative=1e-3),
    },
)
