"""Adam on every rank's shard of the parameters, then an all-gather of the updated parameters.

Legend: P elements of one rank's shard, W ranks, s a rank, t = step; g, theta, m, v gradient, parameters and moments.

    m = beta1 m + (1 - beta1) g;   v = beta2 v + (1 - beta2) g^2                                        (P,)
    theta_s = theta_s - lr * (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)                      (P,)
    gathered[s P + i] = theta_s[i]                                                                      (W P,)
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated
from problems.suite.costs import all_gather_cost, element_size
from problems.suite.families.adam import HYPER, adam, true_adam
from problems.suite.shapes import jitter

SCALES = {"small": 1e-2, "large": 1e2}
EPS = {"eps": 0.5, "small": 1e-10}


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal parameters and gradients, moments that fit them, a learning rate of 0.3 to 0.5.

    The step moves every parameter by about a tenth; with the published rate of 0.001 and zero moments a plain gather of
    the old parameters passes, and the first step is lr * sign(g). "small" and "large" scale gradients and moments: the
    step stays as large.
    """
    P = case["P"]
    s = SCALES.get(case.draw, 1.0)
    # After many steps the moments are no longer divided by a small number, and a step is four times as long.
    settings = {
        "lr": (0.3 + 0.2 * float(rng.uniform(None, ()))) * (0.25 if case.draw == "late" else 1.0),
        "beta1": 0.8 if case.draw == "eps" else 0.9,
        "beta2": 0.99 if case.draw == "eps" else 0.999,
        "eps": EPS.get(case.draw, 1e-8),
        "step": 1000 if case.draw == "late" else int(rng.integers(None, 1, 7, ())),
    }
    ranks: list[Args] = []
    for r in range(case.world_size):
        own: Args = {
            "grad_shard": rng.normal(r, (P,), std=s),
            "master_shard": rng.normal(r, (P,)),
            "exp_avg": rng.normal(r, (P,), std=0.1 * s),
            "exp_avg_sq": 1e-3 * s * s * (0.5 + rng.uniform(r, (P,))),
        }
        ranks.append({**{name: x.to(case.dtype) for name, x in own.items()}, **settings})
    return ranks


def solution(
    grad_shard: Tensor,
    master_shard: Tensor,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    lr: float,
    beta1: float,
    beta2: float,
    eps: float,
    step: int,
) -> Tensor:
    updated, _, _ = adam(master_shard, grad_shard, exp_avg, exp_avg_sq, lr, beta1, beta2, eps, step)
    gathered = updated.new_empty(dist.get_world_size() * updated.numel())
    dist.all_gather_into_tensor(gathered, updated)
    return gathered


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    shards = [
        true_adam(a["master_shard"], a["grad_shard"], a["exp_avg"], a["exp_avg_sq"], {n: a[n] for n in HYPER})[0]
        for a in args
    ]
    return [Expected(Leaf(torch.cat(shards), case.dtype)) for _ in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """15 P element-wise flops; four shards read, W P elements written; an all-gather of W P elements."""
    W, P, e = case.world_size, args[0]["grad_shard"].numel(), element_size(case.dtype)
    return all_gather_cost(W, W * P * e, flops={"fp32": 15.0 * P}, hbm=float((4 + W) * P * e))


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("P",))


def skip_draw(case: Case) -> bool:
    """In fp16 second moments of small gradients are below its range."""
    return case.draw == "small" and case.dtype == torch.float16


PROBLEM = Problem(
    id=43,
    slug="fused_adam_grad_unshard_allgather",
    title="Sharded Adam update followed by parameter all-gather",
    type="sharded_data",
    also=("data",),
    domain="llm_training",
    stage="optimizer",
    origin="the optimizer step of FSDP and distributed optimizers",
    difficulty=2,
    statement=(
        "Every rank holds one shard of P elements of the parameters (`master_shard`), of the gradients, which are "
        "reduced already (`grad_shard`), and of Adam's two moments. Each rank updates its shard by one step of Adam "
        "without weight decay: m = beta1·m + (1 - beta1)·g, v = beta2·v + (1 - beta2)·g², parameter minus "
        "lr·(m/(1 - beta1^step))/(sqrt(v/(1 - beta2^step)) + eps). The result on every rank is one tensor (W·P,) in "
        "the run dtype, the updated shards of all ranks in rank order. The updated moments are not returned, and the "
        "arguments keep their values."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"P": 4096},
    cpu_sizes={"P": 131072},
    check_sizes={"P": 600},
    hidden_sizes=hidden_sizes,
    hidden_property="P is odd",
    draws={
        "late": "structured: step 1000",
        "eps": "structured: other betas and an eps as large as the gradients",
        "small": "stress: gradients scaled by 1e-2 and moments to match",
        "large": "stress: gradients scaled by 1e2 and moments to match",
    },
    skip_draw=skip_draw,
    communication="all_gather of (P,) into (W P,)",
    hazards=(
        "The published shape is 8 KiB per rank in bf16: latency is everything.",
        "In bf16 each of the eight stored steps of Adam rounds; computing a step in fp32 throughout is welcome.",
        "The arguments must keep their values: the moments are updated on copies.",
        "In fp16 an eps of 1e-8 is zero.",
    ),
    tolerances=calibrated(bf16=8e-3, fp16=1e-3, fp32=2e-6),
)
