"""Gradient of vocab-parallel log-probabilities with top-k and top-p filtering, in chunks of tokens.

Legend: B batch, S sequence, V vocabulary, W ranks, q a rank, k = top_k, p = top_p, g a token's grad_output.

    x = a token's row of V logits: columns q V/W to (q+1) V/W - 1 are the logits of rank q
    top-k: of x the entries stay that are not below the k-th largest value, so ties stay
    top-p: of the rest, in ascending order, those stay whose running softmax sum is above 1 - p, and always the largest
    gradient[v] = ([v is the target] - softmax of the entries that stay [v]) * g where v stays, else 0
    vocab_parallel_logits (B, S, V/W), target, grad_output (B, S), out = own columns of the gradient, in float32
    chunks of B * max(1, chunk_size) tokens of the flattened batch limit memory and do not change the result
"""

from __future__ import annotations

from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Problem, RankCost, Rng, calibrated
from problems.suite.families.vocab_log_prob import (
    DRAWS,
    check_divisible,
    chunked_inputs,
    filter_cost,
    full_rows,
    gradient_oracle,
    hidden_sizes,
    kept_entries,
    world_size_rule,
)
from problems.suite.groups import lacks_subgroups


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Logits and targets as for the log-probabilities; grad_output standard normal, in bf16 in runs of every dtype."""
    gradient = rng.normal(None, (case["B"], case["S"]))
    gradient = gradient if case.draw == "wide_gradient" else gradient.to(torch.bfloat16)
    ranks: list[Args] = []
    for args in chunked_inputs(case, rng):
        first = {name: args.pop(name) for name in ("vocab_parallel_logits", "target")}
        ranks.append({**first, "grad_output": gradient.clone(), **args})
    return ranks


def solution(
    vocab_parallel_logits: torch.Tensor,
    target: torch.Tensor,
    grad_output: torch.Tensor,
    tp_group: Optional[dist.ProcessGroup] = None,
    top_k: Optional[int] = None,
    top_p: float = 1.0,
    chunk_size: int = 1,
) -> torch.Tensor:
    W, r = dist.get_world_size(tp_group), dist.get_rank(tp_group)
    B, S, width = vocab_parallel_logits.shape
    tokens = B * max(1, chunk_size)
    check_divisible(B * S, W)
    check_divisible(tokens, W)
    logits = vocab_parallel_logits.reshape(B * S, width)
    out = logits.new_empty((B * S, width), dtype=torch.float32)
    for first in range(0, B * S, tokens):
        chunk = slice(first, first + tokens)
        rows = full_rows(logits[chunk], tp_group)  # (c / W, V), for c tokens in the chunk
        own_target = target.flatten()[chunk].view(W, -1)[r].unsqueeze(-1)
        g = grad_output.flatten()[chunk].view(W, -1)[r].unsqueeze(-1).float()
        kept = kept_entries(rows, top_k, top_p)
        gradient = -rows.masked_fill(~kept, float("-inf")).float().softmax(dim=-1)
        gradient.scatter_add_(-1, own_target, torch.ones_like(g))
        gradient = (gradient * g).masked_fill(~kept, 0.0)
        # The columns of rank q go back to rank q, which receives the tokens of the chunk in order.
        columns = gradient.view(-1, W, width).transpose(0, 1).contiguous()
        dist.all_to_all_single(out[chunk], columns.view(-1, width), group=tp_group)
    return out.view(B, S, width)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """As for the log-probabilities; back go the cut and the normaliser of every token, not its gradient."""
    return filter_cost(case, args, backward=True)


PROBLEM = Problem(
    id=84,
    slug="vocab_parallel_log_prob_topk_chunked_backward",
    title="Gradient of vocab-parallel token log-probabilities with filtering, in chunks of tokens",
    type="tensor",
    also=("sequence",),
    domain="rl",
    stage="backward",
    origin="NVIDIA NeMo-RL: chunked vocab-parallel log-probabilities with sampling filters (backward)",
    difficulty=4,
    statement=(
        "The vocabulary is split over the ranks: `vocab_parallel_logits` (B, S, V/W) holds columns r·V/W to (r+1)·V/W "
        "- 1 on rank r. `target` (B, S), int64, counting over the whole vocabulary, and `grad_output` (B, S), "
        "bfloat16 or float32, are the same on all ranks. Every token's row of V logits is filtered: with `top_k` "
        "above 0, only entries not below the k-th largest value stay, all that tie with it included; then, with "
        "`top_p` below 1, the softmax of what is left is summed up from the smallest entry, and those stay whose "
        "running sum is above 1 - top_p, and always the largest. The decisions are taken in the dtype of the logits. "
        "The log-probability of a token is the log-softmax of its filtered row at the target. The result on every "
        "rank is the gradient of the sum of grad_output times log-probability with respect to its logits, (B, S, "
        "V/W), computed and returned in float32, the filter taken as a constant mask: at entries that stay, (1 at the "
        "target, 0 elsewhere, minus the softmax of the filtered row) times grad_output; 0 at all others, a target "
        "that was filtered out included. The reference works on chunks of B·max(1, `chunk_size`) tokens of the "
        "flattened batch, the last one possibly shorter; the result does not depend on that. If tokens or chunks "
        "cannot be shared equally, ValueError. `tp_group` None means the world group; with a process group, its "
        "members split the vocabulary."
    ),
    solution=solution,
    inputs=inputs,
    oracle=gradient_oracle,
    cost=cost,
    gpu_sizes={"B": 2, "S": 8, "V": 256},
    cpu_sizes={"B": 4, "S": 64, "V": 256},
    check_sizes={"B": 4, "S": 16, "V": 96},
    hidden_sizes=hidden_sizes,
    hidden_property="B is odd and the vocabulary is not a power of two",
    linear=("grad_output",),
    draws={
        "ragged": "structured: a chunk size that does not divide the tokens",
        "wide_gradient": "structured: grad_output in float32",
        **DRAWS,
    },
    world_size_rule=world_size_rule,
    skip_draw=lacks_subgroups,
    replicated=("target", "grad_output"),
    communication=(
        "for each chunk of c tokens:\nall_to_all_single of (c, V/W), logits: tokens are shared, each gets its whole "
        "row\nall_to_all_single of (c, V/W), gradients in float32, back to the owners of the columns"
    ),
    hazards=(
        "A filtered target gets no gradient, but the entries that stay do.",
        "Ties at the k-th largest value all stay, so that more than k entries may.",
        "The k largest logits of every shard, and back a cut and a normaliser per token, are enough; the reference "
        "sends whole shards both ways.",
        "Inputs keep running sums away from the cut, by 0.02 in 16-bit runs, so rounding does not decide.",
    ),
    tolerances=calibrated(bf16=1e-5, fp16=1e-5, fp32=1e-5),
)
