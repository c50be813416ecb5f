"""Distributed Sinkhorn-Knopp assignment of the teacher, as in iBOT and DINOv2.

Legend: b_q samples of rank q, K prototypes, W ranks, t iterations, s a sample, p a prototype; fp32 in every run.

    q[s, p] = exp(teacher_output[s, p] / teacher_temp) for the samples of all ranks, divided by the sum of all
    t times:  q[s, p] /= K * (sum of q[s', p] over the samples s' of all ranks)
              q[s, p] /= N * (sum of q[s, p'] over the prototypes p'),  N = sum of n_masked_patches_tensor over ranks
    assignment = N q of the own samples; rows sum to 1                         teacher_output, assignment (b_q, K)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_reduce_cost
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Logits with a standard deviation of 5 after division by the temperature, partly common to a prototype.

    Rows of the result are peaked. b_q = b + q. The published logits are nearly flat: all results are close to 1/K.
    """
    K = case["K"]
    group = even_and_odd(case.world_size) if case.draw == "subgroups" else None
    shift = rng.normal(None, (K,), std=0.2)
    if case.draw == "favourites":
        shift[: max(1, K // 16)] += 0.7
    temperature = {"cold": 0.04, "warm": 0.7}.get(case.draw, 0.07)
    ranks: list[Args] = []
    for r in range(case.world_size):
        b = case["b"] + r
        ranks.append(
            {
                "teacher_output": rng.normal(r, (b, K), std=0.3) + shift,
                "teacher_temp": temperature,
                "n_masked_patches_tensor": torch.tensor([b]),
                "n_iterations": {"once": 1, "many": 10}.get(case.draw, 3),
                "group": group,
            }
        )
    return ranks


@torch.no_grad()
def solution(
    teacher_output: torch.Tensor,
    teacher_temp: float,
    n_masked_patches_tensor: torch.Tensor,
    n_iterations: int = 3,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    q = torch.exp(teacher_output.to(torch.float32) / teacher_temp)  # (b, K)
    K = q.shape[1]
    samples = n_masked_patches_tensor.to(torch.float32)
    dist.all_reduce(samples, group=group)
    mass = q.sum()
    dist.all_reduce(mass, group=group)
    q /= mass
    for _ in range(n_iterations):
        # Every prototype gets the weight 1/K over the samples of all ranks, then every sample 1/N.
        of_prototype = q.sum(dim=0, keepdim=True)
        dist.all_reduce(of_prototype, group=group)
        q /= of_prototype
        q /= K
        q /= q.sum(dim=1, keepdim=True)
        q /= samples
    return q * samples


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def assigned(members: list[Args]) -> list[Expected]:
        # In logarithms, where the constant factors drop out: normalise over samples and over prototypes in turn.
        log_q = torch.cat([wide(a["teacher_output"]) / a["teacher_temp"] for a in members])
        for _ in range(members[0]["n_iterations"]):
            log_q = log_q - log_q.logsumexp(dim=0, keepdim=True)
            log_q = log_q - log_q.logsumexp(dim=1, keepdim=True)
        rows = log_q.exp().split_with_sizes([len(a["teacher_output"]) for a in members])
        return [Expected(Leaf(own, torch.float32)) for own in rows]

    return by_group(args, assigned)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """An exponential, and per iteration two additions and two products for each element; logits in, assignment out.

    Link: an all-reduce of K prototype sums in fp32 for each iteration. The constant factors need no exchange.
    """

    def costs(members: list[Args]) -> list[RankCost]:
        W, iterations = len(members), members[0]["n_iterations"]
        ranks = []
        for r, a in enumerate(members):
            elements, K = a["teacher_output"].numel(), a["teacher_output"].shape[1]
            flops = {"fp32": elements * (1.0 + 4.0 * iterations)}
            ranks.append(all_reduce_cost(W, 4.0 * K * iterations, flops=flops, hbm=8.0 * elements)[r])
        return ranks

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("b", "K"))


PROBLEM = Problem(
    id=80,
    slug="dinov2_distributed_sinkhorn_knopp",
    title="Distributed Sinkhorn-Knopp teacher assignment (iBOT / DINOv2)",
    type="data",
    also=("collective",),
    domain="vision",
    stage="loss",
    origin="Meta DINOv2 iBOT patch loss (sinkhorn_knopp_teacher)",
    difficulty=2,
    statement=(
        "Every rank holds logits `teacher_output` (b, K) in float32, whatever the run dtype; b may differ from rank to "
        "rank. q = exp(`teacher_output` / `teacher_temp`) over the samples of all ranks is brought close to a matrix "
        "with equal row sums and equal column sums: `n_iterations` times divide every prototype (column) by its sum "
        "over the samples of **all** ranks and by K, then every sample (row) by its sum over the prototypes and by N, "
        "the sum over the ranks of `n_masked_patches_tensor` (1,), int64. The result is N times the own rows, (b, K) "
        "in float32; its rows sum to 1. The factors K and N and a first division by the sum of all of q, which the "
        "reference does, cancel. Logits are such that exp does not overflow float32. `group` None means the world "
        "group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"b": 1024, "K": 16384},
    cpu_sizes={"b": 64, "K": 1024},
    check_sizes={"b": 12, "K": 96},
    hidden_sizes=hidden_sizes,
    hidden_property="b and K are odd, so no row is a multiple of 16 bytes; b differs from rank to rank",
    draws={
        "once": "structured: one iteration",
        "many": "structured: ten iterations",
        "favourites": "structured: a sixteenth of the prototypes is far ahead in the logits of all samples",
        "subgroups": "structured: two process groups, the even ranks and the odd ranks",
        "cold": "stress: a temperature of 0.04, q spans 30 orders of magnitude",
        "warm": "stress: a temperature of 0.7, results close to 1/K",
    },
    skip_draw=lacks_subgroups,
    communication=(
        "all_reduce SUM of the number of samples, (1,)\nall_reduce SUM of the mass, a scalar\n"
        "all_reduce SUM of the prototype sums, (1, K), in each iteration, all in float32"
    ),
    hazards=(
        "float32 whatever the run dtype.",
        "Most of a row's weight lies on a few prototypes; the others must still be divided by the sums of all ranks.",
        "Every iteration needs the prototype sums of all ranks before the sample sums.",
        "b differs from rank to rank.",
    ),
    tolerances=calibrated(bf16=1e-5, fp16=1e-5, fp32=1e-5),
)
