"""Vocab-parallel log-probabilities of tokens with top-k and top-p filtering.

Legend: B batch, S sequence, V vocabulary, W ranks, q a rank, k = top_k, p = top_p.

    x = a token's row of V logits: columns q V/W to (q+1) V/W - 1 are the logits of rank q
    top-k: of x the entries stay that are not below the k-th largest value, so ties stay
    top-p: of the rest, in ascending order, those stay whose running softmax sum is above 1 - p, and always the largest
    out[b, s] = x[target] - log(sum of exp(x) over the entries that stay); -inf if the target does not stay
    vocab_parallel_logits (B, S, V/W), target (B, S), out (B, S) in float32
"""

from __future__ import annotations

from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Problem, calibrated
from problems.suite.families.vocab_log_prob import (
    DRAWS,
    check_divisible,
    filter_cost,
    full_rows,
    hidden_sizes,
    inputs,
    kept_entries,
    log_prob_oracle,
    world_size_rule,
)
from problems.suite.groups import lacks_subgroups


def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    tp_group: Optional[dist.ProcessGroup] = None,
    top_k: Optional[int] = None,
    top_p: float = 1.0,
) -> torch.Tensor:
    W, r = dist.get_world_size(tp_group), dist.get_rank(tp_group)
    B, S, width = vocab_parallel_logits.shape
    check_divisible(B * S, W)
    rows = full_rows(vocab_parallel_logits.reshape(B * S, width), tp_group)  # (B S / W, V)
    filtered = rows.masked_fill(~kept_entries(rows, top_k, top_p), float("-inf"))
    own_target = target.reshape(W, -1)[r].unsqueeze(-1)
    own = filtered.float().log_softmax(dim=-1).gather(-1, own_target).squeeze(-1)
    out = own.new_empty(B * S)
    dist.all_gather_into_tensor(out, own, group=tp_group)
    return out.view(B, S)


PROBLEM = Problem(
    id=82,
    slug="vocab_parallel_log_prob_topk",
    title="Vocab-parallel token log-probabilities with top-k and top-p filtering",
    type="tensor",
    also=("sequence",),
    domain="rl",
    stage="forward",
    origin="NVIDIA NeMo-RL: vocab-parallel log-probabilities with sampling filters",
    difficulty=3,
    statement=(
        "The vocabulary is split over the ranks: `vocab_parallel_logits` (B, S, V/W) holds columns r·V/W to "
        "(r+1)·V/W - 1 on rank r. `target` (B, S), int64, is the same on all ranks and counts over the whole "
        "vocabulary. Every token's row of V logits is filtered: with `top_k` above 0, only entries not below the k-th "
        "largest value stay, all that tie with it included; then, with `top_p` below 1, the softmax of what is left is "
        "summed up from the smallest entry, and those stay whose running sum is above 1 - top_p, and always the "
        "largest. The decisions are taken in the dtype of the logits. The result on every rank is the log-softmax of "
        "the filtered row at the target, (B, S), computed and returned in float32; minus infinity where the target was "
        "filtered out. If the tokens cannot be shared equally, ValueError. `tp_group` None means the world group; with "
        "a process group, its members split the vocabulary."
    ),
    solution=solution,
    inputs=inputs,
    oracle=log_prob_oracle,
    cost=filter_cost,
    gpu_sizes={"B": 2, "S": 8, "V": 256},
    cpu_sizes={"B": 4, "S": 64, "V": 256},
    check_sizes={"B": 4, "S": 16, "V": 96},
    hidden_sizes=hidden_sizes,
    hidden_property="B is odd and the vocabulary is not a power of two",
    draws=DRAWS,
    world_size_rule=world_size_rule,
    skip_draw=lacks_subgroups,
    replicated=("target",),
    communication=(
        "all_to_all_single of (B·S, V/W), logits: tokens are shared, each gets its whole row\n"
        "all_gather of (B·S/W,) log-probabilities, float32"
    ),
    hazards=(
        "Minus infinity is a right answer; infinities are compared by position.",
        "Ties at the k-th largest value all stay, so that more than k entries may.",
        "The k largest logits of every shard are enough; the reference sends whole shards.",
        "Inputs keep running sums away from the cut, by 0.02 in 16-bit runs, so rounding does not decide.",
    ),
    tolerances=calibrated(bf16=1e-5, fp16=1e-5, fp32=1e-5),
)
