"""Policy-gradient loss with importance sampling, from hidden states to metrics over the tokens of all ranks.

Legend: T tokens of one rank, H hidden width, V vocabulary, W ranks, t a token with label y_t, valid unless y_t is
ignore_index; n = max(number of valid tokens of all ranks, 1). Sums, min and max run over the valid tokens of all ranks.

    z = hidden_states weight^T                                                                           (T, V)
    ce[t] = logsumexp over v of z[t, v] - z[t, y_t];  0 where not valid;  logprobs = -ce                 (T,)
    delta = clamp(logprobs - old_logprobs, -20, 20);  ratio = exp(delta)                                 (T,)
    pg = -ratio * advantages;  0 where not valid                                                         (T,)
    loss = sum of pg / n
    metrics = (sum of ratio / n, min of ratio, max of ratio, sum of (ratio - delta - 1) / n, sum of ce / n)
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Tuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Close, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_reduce_cost, dtype_name, element_size
from problems.suite.shapes import jitter

CLAMP = 20.0


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Hidden states whose logit for the label is about 0.4 of the log-sum-exp, so that ce is about 0.6 of it.

    Both then lie below 8, where bf16 still resolves ratios to about a hundredth. Apart from that, hidden states have
    length 2 sqrt(N) and are orthogonal to the label's row: the logit is a sum whose terms cancel. Old log-probabilities
    are lower than the new ones, so that the mean ratio is clearly above 1; advantages have a positive mean.
    With the published draw ratios are 2e-9, and zeros pass for the loss.
    """
    M, N, V = case["M"], case["N"], case["V"]
    ignore_index = -1 if case.draw == "batched" else -100
    reward = 4.0 ** (2.0 * float(rng.uniform(None, ())) - 1.0)
    noise = 0.5 + 0.5 * float(rng.uniform(None, ()))
    spared = int(rng.integers(None, 0, case.world_size - 1, ()))
    ranks: list[Args] = []
    for r in range(case.world_size):
        weight = rng.normal(r, (V, N), std=N**-0.5).to(case.dtype)
        labels = rng.integers(r, 0, V - 1, (M,))
        row = weight[labels].float()
        other = rng.normal(r, (M, N), std=2.0)
        other -= row * ((other * row).sum(1) / row.square().sum(1))[:, None]
        lean = 0.4 * (math.log(V) + 2.0) + 2.0 * rng.uniform(r, (M, 1)) - 1.0
        hidden = (other + lean * row).to(case.dtype)
        # logsumexp of V normal logits with variance |hidden|^2 / N, less the label's logit
        ce = math.log(V) + hidden.float().square().mean(1) / 2 - (hidden.float() * row).sum(1)
        old = -0.4 - 0.6 * rng.uniform(r, ()) - ce + rng.normal(r, (M,), std=noise)
        if case.draw == "clamp":
            old += 30.0 * rng.integers(r, -1, 1, (M,))
        advantages = reward * (0.5 + 1.5 * rng.uniform(r, ()) + rng.normal(r, (M,)))
        ignored = rng.uniform(r, (M,)) < 0.05 + 0.25 * rng.uniform(r, ())
        if case.draw == "all_valid":
            ignored.fill_(False)
        if case.draw == "none_valid" or (case.draw == "spared_rank" and r == spared):
            ignored.fill_(True)
        leading = (2, M // 2) if case.draw == "batched" else (M,)
        per_token = (labels.masked_fill(ignored, ignore_index), old.to(case.dtype), advantages.to(case.dtype))
        kept = [x[: math.prod(leading)].reshape(leading) for x in per_token]
        hidden = hidden[: math.prod(leading)].reshape(*leading, N)
        values = (hidden, weight, *kept, ignore_index)
        ranks.append(dict(zip(ARGUMENTS, values, strict=True)))
    return ranks


ARGUMENTS = ("hidden_states", "weight", "labels", "old_logprobs", "advantages", "ignore_index")


def over_ranks(x: torch.Tensor, op: dist.ReduceOp.RedOpType = dist.ReduceOp.SUM) -> torch.Tensor:
    dist.all_reduce(x, op=op)
    return x


def solution(
    hidden_states: torch.Tensor,
    weight: torch.Tensor,
    labels: torch.Tensor,
    old_logprobs: torch.Tensor,
    advantages: torch.Tensor,
    ignore_index: int = -100,
) -> Tuple[torch.Tensor, Any, torch.Tensor, torch.Tensor, torch.Tensor]:
    logits = F.linear(hidden_states, weight).reshape(-1, weight.shape[0])  # (T, V)
    target = labels.reshape(-1)
    ce = F.cross_entropy(logits, target, ignore_index=ignore_index, reduction="none")
    logprobs = -ce
    ignored = target == ignore_index
    n = over_ranks((~ignored).sum().to(torch.float32)).clamp(min=1.0)

    delta = (logprobs - old_logprobs.reshape(-1)).masked_fill(ignored, 0.0).clamp(-CLAMP, CLAMP)
    ratio = delta.exp()
    weighted = (ratio * advantages.reshape(-1)).masked_fill(ignored, 0.0)
    pg = -weighted
    true_pg = over_ranks(pg.sum()) / n
    # Adds nothing to the value; in training, the gradient with respect to ce comes through the first of the two.
    surrogate = (weighted * ce).sum() / n
    loss = true_pg + surrogate - surrogate.detach()

    k3 = (ratio - delta - 1.0).masked_fill(ignored, 0.0)
    metrics = [
        over_ranks(ratio.masked_fill(ignored, 0.0).sum()) / n,
        over_ranks(ratio.masked_fill(ignored, float("inf")).amin(), dist.ReduceOp.MIN),
        over_ranks(ratio.masked_fill(ignored, float("-inf")).amax(), dist.ReduceOp.MAX),
        over_ranks(k3.sum()) / n,
        over_ranks(ce.sum()) / n,
    ]
    metrics_tensor = torch.stack([metric.to(loss.dtype) for metric in metrics])
    return loss, None, logprobs.view(labels.shape), pg.view(labels.shape), metrics_tensor


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    tokens: list[dict[str, torch.Tensor]] = []
    for a in args:
        valid = (a["labels"] != a["ignore_index"]).flatten()
        z = wide(a["hidden_states"]).flatten(0, -2) @ wide(a["weight"]).t()
        chosen = z.gather(1, a["labels"].flatten().clamp(min=0)[:, None]).squeeze(1)
        ce = torch.where(valid, torch.logsumexp(z, dim=1) - chosen, 0.0)
        delta = torch.clamp(-ce - wide(a["old_logprobs"]).flatten(), -CLAMP, CLAMP)
        pg = torch.where(valid, -delta.exp() * wide(a["advantages"]).flatten(), 0.0)
        tokens.append({"valid": valid, "ce": ce, "delta": delta, "pg": pg})
    valid, ce, delta, pg = (torch.cat([t[name] for t in tokens]) for name in ("valid", "ce", "delta", "pg"))
    ce, delta, pg, n = ce[valid], delta[valid], pg[valid], max(1, int(valid.sum()))
    ratio = delta.exp()
    infinity = torch.tensor([torch.inf], dtype=torch.float64)
    metrics = torch.stack(
        [
            ratio.sum() / n,
            torch.cat([ratio, infinity]).min(),
            torch.cat([ratio, -infinity]).max(),
            (ratio - delta - 1.0).sum() / n,
            ce.sum() / n,
        ]
    )
    loss = Leaf(pg.sum() / n, torch.float32, Close(rms=SUM_RMS[case.dtype]))
    per_ratio = RATIO_RMS[case.dtype]
    expected = []
    for a, own in zip(args, tokens, strict=True):
        shape = a["labels"].shape
        logprobs = Leaf(-own["ce"].reshape(shape), case.dtype)
        per_token = Leaf(own["pg"].reshape(shape), case.dtype, Close(rms=per_ratio))
        expected.append(
            Expected((loss, None, logprobs, per_token, Leaf(metrics, torch.float32, Close(rms=per_ratio, axis=0))))
        )
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 T H V flops for the logits, about 4 T V for the log-sum-exp.

    HBM: hidden states, weight, labels and two numbers per token read, two per token and six fp32 numbers written; the
    logits need not be. Link: the count in fp32 and six numbers in the run dtype, in one all-reduce.
    """
    V, H = args[0]["weight"].shape
    T, e = args[0]["labels"].numel(), element_size(case.dtype)
    flops = {dtype_name(case.dtype): 2.0 * T * H * V}
    flops["fp32"] = flops.get("fp32", 0.0) + 4.0 * T * V
    hbm = float(e * (T * H + V * H) + 8 * T + 4 * e * T + 24)
    return all_reduce_cost(case.world_size, 4 + 6 * e, flops=flops, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N", "V"))


def skip_draw(case: Case) -> bool:
    """exp(20) is infinite in fp16."""
    return case.draw == "clamp" and case.dtype == torch.float16


SUM_RMS = {torch.bfloat16: 8e-3, torch.float16: 1e-3, torch.float32: 1e-5}
"""For the loss: sums over the tokens of a rank, and of the ranks, are stored in the run dtype."""
RATIO_RMS = {torch.bfloat16: 5.5e-2, torch.float16: 8e-3, torch.float32: 1.5e-5}
"""For what depends on ratios: their relative error is the absolute one of logits and cross entropies of 3 to 8."""

PROBLEM = Problem(
    id=25,
    slug="importance_sampling_loss",
    title="Importance-sampling policy-gradient loss with globally reduced metrics",
    type="data",
    also=(),
    domain="rl",
    stage="loss",
    origin="Together AI xorl, importance_sampling_loss_function, with reductions over all ranks added",
    difficulty=2,
    statement=(
        "Logits are `hidden_states` (..., H) times the transpose of `weight` (V, H), which differs from rank to rank. "
        "ce is the cross entropy of every token with its label, computed in fp32, and zero for tokens whose label is "
        "`ignore_index`. With delta = -ce - old_logprobs, clamped to [-20, 20], and ratio = exp(delta), the loss of a "
        "token is -ratio·advantage, zero for ignored ones. The result is a tuple of five: the loss, the sum over the "
        "valid tokens of all ranks divided by their number n (at least 1), a 0-dimensional fp32 tensor; None; -ce and "
        "the losses of the rank's own tokens, in the run dtype and the shape of `labels`; and five fp32 metrics over "
        "the valid tokens of all ranks: mean ratio, smallest and largest ratio, mean of ratio - delta - 1, mean of ce "
        "(means are sums divided by n). A rank without valid tokens adds nothing; if no rank has any, smallest and "
        "largest ratio are +inf and -inf and the rest is zero."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024, "V": 32000},
    cpu_sizes={"M": 128, "N": 128, "V": 2048},
    check_sizes={"M": 256, "N": 64, "V": 512},
    hidden_sizes=hidden_sizes,
    hidden_property="M, N and V are odd, so no row is a multiple of 16 bytes",
    draws={
        "all_valid": "structured: no label is ignored",
        "spared_rank": "structured: one rank has no valid token",
        "none_valid": "structured: no rank has a valid token",
        "batched": "structured: tokens with two leading dimensions and another ignore_index",
        "clamp": "stress: log-probabilities that differ by more than the clamp allows, both ways",
    },
    skip_draw=skip_draw,
    local_outputs=("output.2", "output.3"),
    permutable=True,
    communication=(
        "all_reduce SUM of the fp32 count of valid tokens\n"
        "all_reduce SUM of four numbers in the run dtype, one at a time: losses, ratios, ratio - delta - 1, ce\n"
        "all_reduce MIN and all_reduce MAX of one ratio each"
    ),
    hazards=(
        "The logits of the public shape have 65 MB in bf16 and need not be written.",
        "Seven reductions of one number each can be one.",
        "In bf16 the ratio of two correct implementations may differ by a few hundredths: logits near 6 have steps of "
        "1/32.",
        "Ranks may have no valid token at all.",
    ),
    tolerances=calibrated(bf16=7.5e-3, fp16=1e-3, fp32=1e-5),
)
