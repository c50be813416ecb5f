"""Vocab-parallel cross-entropy loss, forward.

Legend: B batch, S sequence, V vocabulary, W ranks, v a column; rank r holds columns r V/W to (r+1) V/W - 1.

    loss[b, s] = log(sum over all v of exp(z[b, s, v])) - z[b, s, target[b, s]]
    z = the ranks' vocab_parallel_logits (B, S, V/W) side by side; target, loss (B, S)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Group, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import all_reduce_cost, element_size
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Logits 3 times standard normal plus an offset of up to 30 per token; random targets, the same on all ranks."""
    W, B, S, V = case.world_size, case["B"], case["S"], case["V"]
    group, members = None, W
    if case.draw == "subgroups":
        # Two vocabularies at a time, one on the even ranks and one on the odd ones.
        group, members = Group((tuple(range(0, W, 2)), tuple(range(1, W, 2)))), W // 2
    width = V // W
    reach = 1000.0 if case.draw == "offset" else 30.0
    offset = (2.0 * rng.uniform(None, (B, S, 1)) - 1.0) * reach
    target = rng.integers(None, 0, members * width - 1, (B, S))
    if case.draw == "edges":
        edges = torch.tensor([c for r in range(W) for c in (r * width, (r + 1) * width - 1)])
        target = edges[rng.integers(None, 0, len(edges) - 1, (B, S))]
    favourite = rng.integers(None, 0, W - 1, (B, S, 1))
    ranks: list[Args] = []
    for r in range(W):
        logits = rng.normal(r, (B, S, width), std=30.0 if case.draw == "peaked" else 3.0) + offset
        if case.draw == "one_shard":
            logits = logits + 20.0 * (favourite == r)
        ranks.append({"vocab_parallel_logits": logits.to(case.dtype), "target": target.clone(), "group": group})
    return ranks


def solution(
    vocab_parallel_logits: torch.Tensor, target: torch.Tensor, group: Optional[dist.ProcessGroup] = None
) -> torch.Tensor:
    width = vocab_parallel_logits.shape[-1]
    first = dist.get_rank(group) * width
    # Subtract the maximum over the whole vocabulary, in place.
    highest = vocab_parallel_logits.amax(dim=-1)
    dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=group)
    vocab_parallel_logits -= highest.unsqueeze(-1)
    # The target's logit comes from the rank that owns its column; the others contribute zero.
    elsewhere = (target < first) | (target >= first + width)
    column = (target - first).masked_fill(elsewhere, 0)
    predicted = vocab_parallel_logits.gather(-1, column.unsqueeze(-1)).squeeze(-1).masked_fill(elsewhere, 0.0)
    dist.all_reduce(predicted, op=dist.ReduceOp.SUM, group=group)
    total = vocab_parallel_logits.exp().sum(dim=-1)
    dist.all_reduce(total, op=dist.ReduceOp.SUM, group=group)
    return total.log() - predicted


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    W = len(args)
    group = args[0]["group"]
    partition = group.partition if group is not None else (tuple(range(W)),)
    losses: dict[int, torch.Tensor] = {}
    for members in partition:
        z = torch.cat([wide(args[r]["vocab_parallel_logits"]) for r in members], dim=-1)
        predicted = z.gather(-1, args[members[0]]["target"].unsqueeze(-1)).squeeze(-1)
        losses |= dict.fromkeys(members, z.logsumexp(dim=-1) - predicted)
    return [Expected(Leaf(losses[r], case.dtype)) for r in range(W)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """4 B S V/W element-wise flops (maximum, subtract, exp, add); logits, targets and losses once.

    Link: an all-reduce of two numbers per token, the local log-sum-exp in fp32 and the target's logit in the run dtype.
    """
    W, tokens, e = case.world_size, case["B"] * case["S"], element_size(case.dtype)
    local = tokens * (case["V"] // W)
    hbm = float(local * e + 8 * tokens + tokens * e)
    return all_reduce_cost(W, tokens * (4 + e), flops={"fp32": 4.0 * local}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B", "S"), multiple={"V": 24})


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["V"] % world_size == 0:
        return ""
    return f"The world size must divide the vocabulary: {sizes['V']} mod {world_size} is not 0."


def skip_draw(case: Case) -> bool:
    return case.draw == "subgroups" and (case.world_size < 4 or case.world_size % 2 == 1)


PROBLEM = Problem(
    id=73,
    slug="vocab_parallel_cross_entropy_loss",
    title="Vocab-parallel cross-entropy loss (forward)",
    type="tensor",
    also=("embedding",),
    domain="llm_training",
    stage="loss",
    origin="NVIDIA Megatron-LM vocab_parallel_cross_entropy",
    difficulty=2,
    statement=(
        "The vocabulary is split over the ranks: `vocab_parallel_logits` (B, S, V/W) holds columns r·V/W to "
        "(r+1)·V/W - 1 on rank r. `target` (B, S), int64, is the same on all ranks and counts over the whole "
        "vocabulary. The result on every rank is the cross entropy of every token, (B, S) in the dtype of the "
        "logits, without reduction: the log of the sum of exponentials over the whole vocabulary minus the target's "
        "logit. It must be stable for large logits. The logits may be overwritten. `group` None means the world "
        "group; with a process group, its members split the vocabulary in the order of their ranks in it."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 8, "S": 1024, "V": 512},
    cpu_sizes={"B": 8, "S": 256, "V": 512},
    check_sizes={"B": 4, "S": 48, "V": 64},
    hidden_sizes=hidden_sizes,
    hidden_property="B and S are odd and the vocabulary is not a power of two",
    draws={
        "edges": "structured: targets in the first and last column of the shards",
        "one_shard": "structured: most of a token's probability lies in one rank's shard",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "peaked": "stress: logits with a standard deviation of 30",
        "offset": "stress: offsets of up to 1000 per token, which overflow without subtracting the maximum",
    },
    world_size_rule=world_size_rule,
    may_mutate=("vocab_parallel_logits",),
    skip_draw=skip_draw,
    replicated=("target",),
    communication=(
        "all_reduce MAX of (B, S)\nall_reduce SUM of (B, S), target logits\nall_reduce SUM of (B, S), sums of "
        "exponentials"
    ),
    hazards=(
        "The reference overwrites the logits, so every call needs fresh ones.",
        "Two numbers per token suffice on the link; the reference moves three.",
    ),
)
