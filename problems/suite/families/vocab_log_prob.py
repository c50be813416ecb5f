"""Token log-probabilities over a vocabulary split over the ranks, after top-k and top-p filtering: problems 82 to 84.

Legend: B batch, S sequence, n = B S tokens, V vocabulary, W ranks, q a rank, k = top_k, p = top_p.

    x = a token's row of V logits: columns q V/W to (q+1) V/W - 1 are the logits of rank q
    top-k: x[v] is kept where it is not below the k-th largest value (all that are equal to it stay)
    top-p: of what is left, in descending order, x[v] is kept where the softmax of all before it sums to less than p;
           the largest always
    log-probability of v = x[v] - log(sum of exp(x) over what is kept), minus infinity where v is not kept
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Expected, Leaf, RankCost, Rng, wide
from problems.suite.costs import element_size
from problems.suite.groups import by_group, even_and_odd, members
from problems.suite.shapes import jitter

TOP_K, TOP_P = 10, 0.9
GAP = 1e-2  # between the k-th and the next largest logit
REDRAWS = 200

DRAWS = {
    "k_only": "structured: top-k without top-p",
    "p_only": "structured: top-p without top-k",
    "unfiltered": "structured: neither top-k nor top-p, top_k is 0",
    "beyond": "structured: top_k is larger than the vocabulary, with top-p",
    "ties": "structured: several logits are equal to the k-th largest, top-k only",
    "one_shard": "structured: a token's likely entries all lie in one rank's shard",
    "subgroups": "structured: two process groups, the even ranks and the odd ranks",
    "offset": "stress: offsets of up to 100 per token",
}


# Of the references ----------------------------------------------------------------------------------------------------


def full_rows(shard: torch.Tensor, group: Optional[dist.ProcessGroup]) -> torch.Tensor:
    """From (c, V/W) on every rank to this rank's c/W tokens with the whole vocabulary, (c/W, V)."""
    W = dist.get_world_size(group)
    shard = shard.contiguous()
    received = torch.empty_like(shard)
    dist.all_to_all_single(received, shard, group=group)
    tokens, width = shard.shape[0] // W, shard.shape[1]
    return received.view(W, tokens, width).transpose(0, 1).reshape(tokens, W * width)


def kept_entries(rows: torch.Tensor, top_k: Optional[int], top_p: float) -> torch.Tensor:
    """Boolean mask of the entries of (tokens, V) that top-k and top-p leave."""
    V = rows.shape[-1]
    k = min(int(top_k), V) if top_k is not None and top_k > 0 else V
    if top_p is None or top_p >= 1.0:
        return rows >= rows.topk(k, dim=-1).values[..., -1:]  # everything if k is V
    ascending, order = rows.sort(dim=-1)
    ascending = ascending.masked_fill(ascending < ascending[..., V - k, None], -math.inf)
    running = ascending.softmax(dim=-1).cumsum(dim=-1)
    kept = running > 1.0 - top_p
    kept[..., -1] = True
    return torch.zeros_like(kept).scatter(-1, order, kept)


def check_divisible(tokens: int, W: int) -> None:
    """Raises ValueError unless so many tokens can be shared equally."""
    if tokens % W != 0:
        raise ValueError(f"{tokens} tokens cannot be shared equally by {W} ranks")


# Inputs ---------------------------------------------------------------------------------------------------------------


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Full rows from the shared stream, cut into shards; half of the targets among the five most likely.

    float32: twice standard normal. 16 bits: standard normal, and three to six likely entries of about 8, because
    running sums in the run dtype need a margin of 0.02 around the cut. Rows in which rounding or the order of equal
    values would decide are drawn again.
    """
    W, B, S = case.world_size, case["B"], case["S"]
    width = case["V"] // W
    group = even_and_odd(W) if case.draw == "subgroups" else None
    filters = _filters(case.draw, case["V"])
    ranks: dict[int, Args] = {}
    for part in members(group, W):
        rows = _rows(case, rng, B * S, len(part) * width, filters)
        likely = rows.topk(5, dim=-1).indices.gather(1, rng.integers(None, 0, 4, (B * S, 1)))[:, 0]
        anywhere = rng.integers(None, 0, rows.shape[1] - 1, (B * S,))
        target = torch.where(rng.uniform(None, (B * S,)) < 0.5, likely, anywhere).reshape(B, S)
        for r, shard in zip(part, rows.chunk(len(part), dim=1), strict=True):
            logits = shard.reshape(B, S, width).contiguous()
            ranks[r] = {"vocab_parallel_logits": logits, "target": target.clone(), "tp_group": group, **filters}
    return [ranks[r] for r in range(W)]


def chunked_inputs(case: Case, rng: Rng) -> list[Args]:
    """``inputs`` with a chunk size: about a quarter of the sequence, a multiple of W.

    "ragged": one that leaves a shorter last chunk or, if W allows none, one that is larger than everything.
    """
    W, B, S = case.world_size, case["B"], case["S"]
    chunk = min(S, -(-max(W, S // 4) // W) * W)
    if case.draw == "ragged":
        allowed = (c for c in range(2 * S // 3, 0, -1) if S % c != 0 and B * c % W == 0)
        chunk = next(allowed, S + W)
    return [{**args, "chunk_size": chunk} for args in inputs(case, rng)]


def _filters(draw: str, V: int) -> Args:
    top_k = {"p_only": None, "unfiltered": 0, "beyond": V + 5}.get(draw, TOP_K)
    return {"top_k": top_k, "top_p": 1.0 if draw in ("k_only", "unfiltered", "ties") else TOP_P}


def _rows(case: Case, rng: Rng, tokens: int, V: int, filters: Args) -> torch.Tensor:
    """(tokens, V) in the run dtype, none of them near a decision."""
    rows = _drawn(case, rng, tokens, V)
    for _ in range(REDRAWS):
        near = _near_a_decision(rows, filters, 2e-4 if case.dtype.itemsize > 2 else 0.02)
        if case.draw == "ties" or not bool(near.any()):
            return rows
        rows = torch.where(near[:, None], _drawn(case, rng, tokens, V), rows)
    raise ValueError(f"no rows of {V} logits away from the cut in {REDRAWS} draws")


def _drawn(case: Case, rng: Rng, tokens: int, V: int) -> torch.Tensor:
    noise = rng.normal(None, (tokens, V))
    order = rng.uniform(None, (tokens, V))
    if case.draw == "one_shard":
        first = rng.integers(None, 0, case.world_size - 1, (tokens, 1)) * (V // case.world_size)
        inside = (torch.arange(V) >= first) & (torch.arange(V) < first + V // case.world_size)
        order = torch.where(inside, order, order + 1.0)
    count = rng.integers(None, 3, 6, (tokens, 1))
    planted = order.argsort(dim=-1).argsort(dim=-1) < count
    if case.dtype.itemsize <= 2 or case.draw == "one_shard":
        rows = torch.where(planted, 8.0 + 0.8 * noise, noise)
    else:
        rows = 2.0 * noise
    if case.draw == "offset":
        rows = rows + 100.0 * (2.0 * rng.uniform(None, (tokens, 1)) - 1.0)
    if case.draw == "ties":
        rows = (2.0 * rows).round() / 2.0
    return rows.to(case.dtype)


def _near_a_decision(rows: torch.Tensor, filters: Args, margin: float) -> torch.Tensor:
    """Rows whose k-th and next largest values differ by less than GAP, or that are ambiguous at the cut of top-p.

    There a running sum lies within ``margin`` of top_p, or the last entry that stays equals the first that does not.
    """
    x = wide(rows).sort(dim=-1, descending=True).values
    k = min(filters["top_k"] or x.shape[1], x.shape[1])
    near = torch.zeros(len(x), dtype=torch.bool)
    if k < x.shape[1]:
        near |= x[:, k - 1] - x[:, k] < GAP
    if filters["top_p"] < 1.0:
        running = x[:, :k].softmax(dim=-1).cumsum(dim=-1)
        near |= ((running - filters["top_p"]).abs() < margin).any(dim=-1)
        last = (running < filters["top_p"]).sum(dim=-1, keepdim=True)  # position of the last entry that stays
        following = (last + 1).clamp(max=k - 1)
        near |= ((x.gather(1, last) == x.gather(1, following)) & (last < k - 1))[:, 0]
    return near


# Oracles and costs ----------------------------------------------------------------------------------------------------


def filtered_log_probs(group: Sequence[Args]) -> torch.Tensor:
    """(n, V) float64 log-probabilities after filtering, minus infinity where an entry is not kept."""
    a = group[0]
    x = torch.cat([wide(b["vocab_parallel_logits"]) for b in group], dim=-1).flatten(0, 1)
    descending, order = x.sort(dim=-1, descending=True, stable=True)
    if a["top_k"]:
        smallest = descending[:, min(a["top_k"], x.shape[1]) - 1, None]
        descending = descending.masked_fill(descending < smallest, -math.inf)
    if a["top_p"] < 1.0:
        probability = descending.softmax(dim=-1)
        before = probability.cumsum(dim=-1) - probability
        left_out = before >= a["top_p"]
        left_out[:, 0] = False
        descending = descending.masked_fill(left_out, -math.inf)
    log_probs = descending - descending.logsumexp(dim=-1, keepdim=True)
    return torch.empty_like(x).scatter_(1, order, log_probs)


def log_prob_oracle(case: Case, args: list[Args]) -> list[Expected]:
    """Log-probability of every target, float32 on all ranks of the group."""

    def looked_up(group: list[Args]) -> list[Expected]:
        target = group[0]["target"]
        found = filtered_log_probs(group).gather(1, target.reshape(-1, 1)).reshape(target.shape)
        return [Expected(Leaf(found, torch.float32, Close())) for _ in group]

    return by_group(args, looked_up, name="tp_group")


def gradient_oracle(case: Case, args: list[Args]) -> list[Expected]:
    """(onehot(target) - probability) * grad_output at the kept entries, zero elsewhere; own columns, float32."""

    def gradients(group: list[Args]) -> list[Expected]:
        log_probs = filtered_log_probs(group)
        onehot = torch.zeros_like(log_probs).scatter_(1, group[0]["target"].reshape(-1, 1), 1.0)
        whole = (onehot - log_probs.exp()) * wide(group[0]["grad_output"]).reshape(-1, 1)
        whole = torch.where(log_probs.isinf(), 0.0, whole)
        shape = group[0]["vocab_parallel_logits"].shape
        return [Expected(Leaf(own.reshape(shape), torch.float32)) for own in whole.chunk(len(group), dim=1)]

    return by_group(args, gradients, name="tp_group")


def values_sent(case: Case, a: Args) -> float:
    """Bytes that a shard must tell of one token: its k largest logits; without top-k all of them.

    Without any filter two numbers do, the local log-sum-exp in fp32 and the target's logit.
    """
    width, e = a["vocab_parallel_logits"].shape[-1], element_size(case.dtype)
    if a["top_k"]:
        return float(min(width, a["top_k"]) * e)
    return float(width * e) if a["top_p"] < 1.0 else float(min(4 + e, width * e))


def filter_cost(case: Case, args: list[Args], *, backward: bool = False) -> list[RankCost]:
    """log2(V) compares and 6 flops for each logit of the rank's n/W tokens (8 for gradients); tensors once.

    Link: of every token of another rank what a shard must tell of it, and the results back: a log-probability in fp32
    to every rank; for gradients the cut and the normaliser, from which every rank forms its own columns.
    """

    def costs(group: list[Args]) -> list[RankCost]:
        W, logits = len(group), group[0]["vocab_parallel_logits"]
        tokens, width = logits.shape[0] * logits.shape[1], logits.shape[2]
        work = tokens * width * (math.log2(W * width) + (8.0 if backward else 6.0))
        result = logits.numel() * 4.0 + tokens * group[0]["grad_output"].element_size() if backward else 4.0 * tokens
        hbm = logits.numel() * element_size(case.dtype) + 8.0 * tokens + result
        shared = tokens / W * (W - 1)
        wire = shared * values_sent(case, group[0]) + shared * (8.0 if backward else 4.0)
        return [RankCost({"fp32": work}, hbm, wire, wire)] * W

    return by_group(args, costs, name="tp_group")


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B",), multiple={"S": 8, "V": 24})


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["V"] % world_size != 0:
        return f"The world size must divide the vocabulary: {sizes['V']} mod {world_size} is not 0."
    if (sizes["B"] * sizes["S"]) % world_size != 0:
        return f"The world size must divide the tokens: {sizes['B']} * {sizes['S']} mod {world_size} is not 0."
    return ""
