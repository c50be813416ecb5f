"""Loss of all ranks weighted by their token counts, and the gradient of a rank's own loss: one number per rank each.

Legend: l_r local loss, n_r = local_valid_tokens, n = global_valid_tokens, u_r = grad_normalized_loss and s_r =
grad_loss_sum, the gradients that arrive from above; q a rank.

    l_q = nan_to_num(l_q) where n_q = 0
    loss_sum = sum over q of l_q n_q;   normalized_loss = loss_sum / n
    grad_loss_r = u_r n_r / n + s_r n_r                                                 s_r counts as 0 if it is None
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Optional, Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_reduce_cost, element_size


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Losses in [1, 2] times a level of the trial's own, counts of T times 32 to 64, gradients that matter equally.

    No rank's share is below a thirtieth (W = 8), and losses do not cancel. With T a power of two the counts are exact
    in bf16. The published counts are equal and the incoming gradients one and zero, so the result is the constant 1/W.
    """
    W = case.world_size
    level = 4.0 ** (2.0 * float(rng.uniform(None, ())) - 1.0)
    counts = (case["T"] * rng.integers(None, 32, 64, (W,))).tolist()
    if case.draw == "many_tokens":
        counts = rng.integers(None, 2**19, 2**20, (W,)).tolist()
    empty = int(rng.integers(None, 0, W - 1, ()))
    value = {"empty_nan": math.nan, "empty_inf": math.inf, "empty_minus_inf": -math.inf, "nan": math.nan}
    if case.draw.startswith("empty"):
        counts[empty] = 0
    total = max(1, sum(counts))
    ranks: list[Args] = []
    for r in range(W):
        loss = level * (1.0 + rng.uniform(r, ()))
        if r == empty and case.draw in value:
            loss = torch.full((), value[case.draw])
        above = 0.5 + 1.5 * rng.uniform(r, (2,))
        ranks.append(
            {
                "loss": loss.to(case.dtype),
                "local_valid_tokens": torch.tensor(counts[r]),
                "global_valid_tokens": torch.tensor(total),
                "grad_normalized_loss": above[0].to(case.dtype),
                "grad_loss_sum": None if case.draw == "no_sum" else (above[1] / total).to(case.dtype),
            }
        )
    return ranks


def solution(
    loss: torch.Tensor,
    local_valid_tokens: torch.Tensor,
    global_valid_tokens: torch.Tensor,
    grad_normalized_loss: torch.Tensor,
    grad_loss_sum: Optional[torch.Tensor] = None,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if local_valid_tokens == 0:
        # A mean over no tokens is NaN; it must not reach the other ranks.
        loss = torch.nan_to_num(loss)
    loss_sum = loss * local_valid_tokens
    dist.all_reduce(loss_sum, op=dist.ReduceOp.SUM)
    normalized_loss = loss_sum / global_valid_tokens
    grad_loss = grad_normalized_loss * local_valid_tokens / global_valid_tokens
    if grad_loss_sum is not None:
        grad_loss = grad_loss + grad_loss_sum * local_valid_tokens
    return normalized_loss, loss_sum, grad_loss


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    n = int(args[0]["global_valid_tokens"])
    counts = [int(a["local_valid_tokens"]) for a in args]
    shares = [wide(a["loss"]) * count for a, count in zip(args, counts, strict=True) if count > 0]
    loss_sum = torch.stack([torch.zeros((), dtype=torch.float64), *shares]).sum()
    expected = []
    for a, count in zip(args, counts, strict=True):
        from_sum = 0.0 if a["grad_loss_sum"] is None else wide(a["grad_loss_sum"])
        gradient = count * (wide(a["grad_normalized_loss"]) / n + from_sum)
        expected.append(Expected(tuple(Leaf(x, case.dtype) for x in (loss_sum / n, loss_sum, gradient))))
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """8 flops; three numbers in the run dtype and two counts read, three numbers written; one number reduced."""
    e = element_size(case.dtype)
    return all_reduce_cost(case.world_size, e, flops={"fp32": 8.0}, hbm=float(6 * e + 16))


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return {"T": 2 ** int(torch.randint(0, 4, (1,), generator=secret))}


def skip_draw(case: Case) -> bool:
    """In fp16 a count of a million is infinite."""
    return case.draw == "many_tokens" and case.dtype == torch.float16


_EXACT = (
    "Every input and output is one number, and one number is exact in fp8 with a scale of its own; there is nothing "
    "that a narrower format could lose."
)

PROBLEM = Problem(
    id=23,
    slug="grad_acc_loss",
    title="Token-weighted loss normalisation across ranks, with its local gradient",
    type="data",
    also=("sharded_data",),
    domain="llm_training",
    stage="loss",
    origin="Together AI xorl src/xorl/distributed/gradient_accumulate_loss.py, GradientAccumulateLoss, both directions",
    difficulty=2,
    statement=(
        "All arguments are 0-dimensional tensors: the rank's mean `loss`, its number of valid tokens and the number of "
        "all ranks together (int64), and the gradients that arrive for the two outputs; `grad_loss_sum` may be None, "
        "which counts as zero. `loss_sum` is the sum over all ranks of loss times local count, and `normalized_loss` "
        "is loss_sum divided by the global count. A rank without valid tokens replaces NaN in its loss by zero and "
        "infinities by the largest finite numbers before multiplying, so it contributes zero; elsewhere NaN and "
        "infinities spread. `grad_loss` is grad_normalized_loss · local count / global count + grad_loss_sum · local "
        "count, without scaling by W. The result is the tuple (normalized_loss, loss_sum, grad_loss) in the run dtype."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"T": 16},
    cpu_sizes={"T": 16},
    hidden_sizes=hidden_sizes,
    hidden_property="other token counts",
    draws={
        "empty": "structured: one rank has no valid tokens",
        "empty_nan": "structured: one rank has no valid tokens and its loss is NaN",
        "empty_inf": "structured: one rank has no valid tokens and its loss is infinite",
        "empty_minus_inf": "structured: one rank has no valid tokens and its loss is minus infinity",
        "nan": "structured: one rank has valid tokens and a loss of NaN, which must reach every rank",
        "no_sum": "structured: grad_loss_sum is None",
        "many_tokens": "stress: a million tokens, a count that bf16 does not hold exactly",
    },
    skip_draw=skip_draw,
    local_outputs=("output.2",),
    permutable=True,
    communication="all_reduce SUM of one number in the run dtype",
    hazards=(
        "The gradient needs no communication.",
        "Testing the count on the host waits for the device; a selection on the device does not.",
        "One number travels: latency is everything.",
        "In fp16 large counts overflow.",
    ),
    tolerances=calibrated(bf16=8.8e-3, fp16=1.3e-3, fp32=1e-6),
    waivers={
        f"{row}/{dtype}": _EXACT
        for row in ("lower_precision", "narrow_inputs", "narrow_outputs")
        for dtype in ("bf16", "fp16")
    },
)
