"""Load-balancing loss of a mixture of experts: every rank's loss over its own tokens, averaged over the ranks.

Legend: R rows (tokens of all layers), E experts, k picks per row, w_i weight of row i (its mask, or 1), W ranks.

    p = softmax(G), rounded to the dtype of G                                                            (R, E)
    one[i, x] = 1 if p[i, x] is among the k largest of row i, else 0                                     (R, E)
    f[x] = sum over i of w_i one[i, x] / sum of w;   q[x] = sum over i of w_i p[i, x] / sum of w         (E,)
    loss = mean over the ranks of E * sum over x of f[x] q[x]                                            one number
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Tuple, Union

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, Valid, calibrated, store, wide
from problems.suite.costs import all_reduce_cost, element_size
from problems.suite.shapes import jitter
from problems.suite.trees import tensors

E = 8
BATCH = 2
GAPS = {torch.bfloat16: 4e-2, torch.float16: 5e-3, torch.float32: 2e-4}
"""Differences of logits (of about 1) that softmax and rounding to the run dtype keep apart."""


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal logits with a preference for some experts that differs from rank to rank.

    Losses of the ranks then lie between about 2.5 and 6, so that one number for all, one rank's loss, or the loss of
    all tokens together is wrong; with the published logits the answer is 2.0. No pick depends on rounding, except in
    "ties", where logits are small integers.
    """
    M, k = case["M"], 1 if case.draw == "top1" else 2
    preference = 1.0 + 1.2 * float(rng.uniform(None, ()))
    ranks: list[Args] = []
    for r in range(case.world_size):
        bias = rng.normal(r, (1, E), std=preference)
        layers = []
        for _ in range(2 if case.draw in ("layers", "mask") else 1):
            rows = M // (2 * BATCH) * BATCH if case.draw == "mask" else M
            logits = rng.normal(r, (rows, E)) + bias
            if case.draw == "ties":
                logits = logits.round()
            else:
                _separate_picks(logits, bias, k, rng.uniform(r, (rows, 2)), GAPS[case.dtype])
            layers.append(logits.to(case.dtype))
        mask = None
        if case.draw == "mask":
            kept = rng.uniform(r, (BATCH, layers[0].shape[0] // BATCH)) < 0.4 + 0.5 * rng.uniform(r, ())
            kept[0, 0] = True
            mask = kept.to(torch.float32)
        gate_logits = tuple(layers) if len(layers) > 1 else layers[0]
        ranks.append({"gate_logits": gate_logits, "num_experts": E, "top_k": k, "attention_mask": mask})
    return ranks


def _separate_picks(logits: torch.Tensor, bias: torch.Tensor, k: int, u: torch.Tensor, gap: float) -> None:
    """Raises the picks of every row by 0.2, in place; but in half of the rows the last pick wins by little.

    There it wins over an expert that is picked more often on the whole, by a few steps of the run dtype: a narrower
    format loses such picks, and all losses shift the result the same way.
    """
    rows = torch.arange(len(logits))
    order = logits.topk(k + 1).indices
    logits.scatter_add_(1, order[:, :k], torch.full((len(logits), k), 0.2))
    last, popular = order[:, k - 1].clone(), order[:, k].clone()
    swapped = bias[0, last] > bias[0, popular]
    last[swapped], popular[swapped] = popular[swapped], last[swapped]
    level = logits[rows, order[:, k]]
    narrow = u[:, 0] < 0.5
    if k > 1:  # the swapped expert must stay below the picks before it
        narrow &= logits[rows, order[:, k - 2]] > level + 4 * gap * (1.0 + level.abs())
    wins = level + gap * (1.0 + 0.5 * u[:, 1]) * (level.abs() / 2).clamp(min=1.0)
    logits[rows[narrow], last[narrow]] = wins[narrow]
    logits[rows[narrow], popular[narrow]] = level[narrow]


def solution(
    gate_logits: Union[torch.Tensor, Tuple[torch.Tensor, ...]],
    num_experts: int,
    top_k: int = 2,
    attention_mask: Optional[torch.Tensor] = None,
) -> torch.Tensor:
    logits = gate_logits if isinstance(gate_logits, torch.Tensor) else torch.cat(tuple(gate_logits))  # (R, E)
    p = F.softmax(logits, dim=-1)
    one = F.one_hot(p.topk(top_k, dim=-1).indices, num_experts).float()  # (R, k, E)
    if attention_mask is None:
        f, q = one.mean(dim=0), p.mean(dim=0)
    else:
        # Rows run over layers, then batch, then sequence.
        weight = attention_mask.reshape(-1).float().repeat(len(logits) // attention_mask.numel())
        f = (one * weight[:, None, None]).sum(dim=0) / weight.sum()
        q = (p * weight[:, None]).sum(dim=0) / weight.sum()
    loss = num_experts * (f * q).sum()
    dist.all_reduce(loss, op=dist.ReduceOp.SUM)
    return loss / dist.get_world_size()


def local_losses(case: Case, a: Args) -> tuple[torch.Tensor, torch.Tensor]:
    """Smallest and largest loss of one rank over the ways of breaking ties; equal where there are none.

    With q fixed the loss is a sum over rows of q at the picked experts, so every row can be taken by itself.
    """
    p = store(torch.softmax(torch.cat([wide(x) for x in tensors(a["gate_logits"])]), dim=-1), case.dtype)
    mask, k = a["attention_mask"], a["top_k"]
    w = torch.ones(len(p)).double() if mask is None else wide(mask).flatten().repeat(len(p) // mask.numel())
    q = (w[:, None] * p).sum(0) / w.sum()
    last = p.topk(k).values[:, -1:]
    certain, tied = p > last, p == last
    base = (certain * q).sum(1)
    open_places = k - certain.sum(1, keepdim=True)
    found = []
    for largest in (False, True):
        # q of the tied experts in the order in which they are picked, and zero behind those that have a place
        outside = -torch.inf if largest else torch.inf
        order = torch.where(tied, q, outside).sort(dim=1, descending=largest).values
        picked = torch.where(torch.arange(order.shape[1]) < open_places, order, 0.0).sum(1)
        found.append(a["num_experts"] * (w * (base + picked)).sum() / w.sum())
    return found[0], found[1]


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    bounds = [local_losses(case, a) for a in args]
    low, high = (torch.stack(x).mean() for x in zip(*bounds, strict=True))
    if case.draw != "ties":
        return [Expected(Leaf((low + high) / 2, torch.float32))] * len(args)
    allowed = 3.0 * TOLERANCES[case.dtype].rms * float(high)

    def check(value: torch.Tensor) -> str:
        if low - allowed <= float(value) <= high + allowed:
            return ""
        return f"{float(value):.6g} is outside of what ties allow, {float(low):.6g} to {float(high):.6g}"

    return [Expected(Leaf((low + high) / 2, torch.float32, Valid(check)))] * len(args)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """8 R E flops (softmax, choice, sums); logits and mask read once, one number written; one fp32 number reduced."""
    costs = []
    for a in args:
        elements = sum(x.numel() for x in tensors(a["gate_logits"]))
        mask = a["attention_mask"]
        hbm = float(elements * element_size(case.dtype) + 4 + (0 if mask is None else 4 * mask.numel()))
        costs.append(all_reduce_cost(len(args), 4, flops={"fp32": 8.0 * elements}, hbm=hbm)[0])
    return costs


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M",))


TOLERANCES = calibrated(bf16=1.7e-3, fp16=2.5e-4, fp32=1e-6)
_SCALAR = "The output is one fp32 number, and TF32 rounds it by less than 16-bit probabilities are rounded."
_ONE_OF_EIGHT = (
    "The output is a mean over eight ranks: an eighth of the rows of one rank is a 64th of it, and a rank whose loss is near "
    "the 2.0 of lost logits hardly moves it; rounding of 16-bit probabilities needs the room."
)

PROBLEM = Problem(
    id=24,
    slug="load_balancing_loss_fn",
    title="Mixture-of-experts load-balancing auxiliary loss, averaged over ranks",
    type="data",
    also=("expert",),
    domain="llm_training",
    stage="loss",
    origin="Hugging Face Transformers, Mixtral: load_balancing_loss_func, with a mean over ranks added",
    difficulty=2,
    statement=(
        "`gate_logits` are the router's logits of the rank's tokens, (M, num_experts), or a tuple or list of such "
        "tensors, one for each layer, which are concatenated. Their softmax over the experts is rounded to the dtype "
        "of the logits; the `top_k` largest probabilities **after** that rounding are a token's picks, and where they "
        "tie any choice is right. f[x] is the mean over the rows of the number of picks of expert x, q[x] the mean of "
        "its probability. With `attention_mask` (batch, seq) of zeros and ones, repeated for each layer, both are "
        "means over the rows where it is one; rows run over layers, then batch, then sequence. The local loss is "
        "num_experts times the sum over the experts of f·q; the result on every rank is the mean of the local losses "
        "over the ranks, a 0-dimensional fp32 tensor. It is not the loss of all ranks' tokens together."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024},
    cpu_sizes={"M": 8192},
    check_sizes={"M": 256},
    hidden_sizes=hidden_sizes,
    hidden_property="M is odd",
    draws={
        "layers": "structured: a tuple of two layers",
        "mask": "structured: two layers and a mask that leaves out some tokens",
        "top1": "structured: one pick per token",
        "ties": "structured: logits are small integers, so picks tie; any choice is right",
    },
    permutable=True,
    communication="all_reduce SUM of one fp32 number",
    hazards=(
        "Picks are made after rounding to the run dtype.",
        "The loss of the pooled tokens is another number: f·q is formed on every rank before the mean.",
        "One number travels: latency is everything.",
    ),
    tolerances=TOLERANCES,
    waivers={
        **dict.fromkeys(("narrow_outputs/bf16", "narrow_outputs/fp16"), _SCALAR),
        **dict.fromkeys(("missing_chunk/bf16/8", "missing_chunk/fp16/8", "missing_rank/bf16/8"), _ONE_OF_EIGHT),
    },
)
