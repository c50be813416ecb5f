"""Sum over the ranks of three shared LoRA gradients, in place.

Legend: R = 8 rank of the adapters, N width, W ranks, q a rank.

    out = sum over q of gradient_q, for each of the three gradients          (R, N), (R, N) and (N, R)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import all_reduce_cost, element_size
from problems.suite.draws import scaled_normal, small_integers
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter

R = 8
GRADIENTS = ("grad_fc1_1_lora_A", "grad_fc1_2_lora_A", "grad_fc2_lora_B")


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal values with standard deviation 0.5 / sqrt(W), so that the sum's is 0.5 at every world size."""
    W, N = case.world_size, case["N"]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: list[Args] = []
    for r in range(W):
        own: Args = {}
        for name, shape in zip(GRADIENTS, ((R, N), (R, N), (N, R)), strict=True):
            exact = case.draw == "exact"
            x = small_integers(rng, r, shape) if exact else scaled_normal(rng, r, shape, case.draw, std=0.5 * W**-0.5)
            own[name] = x.to(case.dtype)
        ranks.append({**own, "group": group})
    return ranks


def solution(
    grad_fc1_1_lora_A: torch.Tensor,
    grad_fc1_2_lora_A: torch.Tensor,
    grad_fc2_lora_B: torch.Tensor,
    group: Optional[dist.ProcessGroup] = None,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    for gradient in (grad_fc1_1_lora_A, grad_fc1_2_lora_A, grad_fc2_lora_B):
        dist.all_reduce(gradient, op=dist.ReduceOp.SUM, group=group)
    return grad_fc1_1_lora_A, grad_fc1_2_lora_A, grad_fc2_lora_B


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    rule = Exact(signed_zeros=False) if case.draw == "exact" else Close()

    def summed(members: list[Args]) -> list[Expected]:
        totals = [torch.stack([wide(a[name]) for a in members]).sum(0) for name in GRADIENTS]
        return [Expected(tuple(Leaf(total, case.dtype, rule) for total in totals)) for _ in members]

    return by_group(args, summed)


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """(W-1)/W 3 R N additions; gradients read and written once; one all-reduce of 3 R N elements."""

    def costs(members: list[Args]) -> list[RankCost]:
        W, elements = len(members), sum(members[0][name].numel() for name in GRADIENTS)
        size = elements * element_size(case.dtype)
        return all_reduce_cost(W, size, flops={"fp32": (W - 1) / W * elements}, hbm=2.0 * size)

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("N",))


PROBLEM = Problem(
    id=30,
    slug="moe_epgroupgemm_lora_backward",
    title="All-reduce of shared LoRA gradients (expert-parallel grouped GEMM, backward)",
    type="expert",
    also=("collective", "data"),
    domain="llm_training",
    stage="backward",
    origin="Together AI xorl, expert-parallel grouped-GEMM LoRA backward: synchronisation of gradients",
    difficulty=1,
    statement=(
        "Every rank holds three gradients of adapters that all experts share: two of shape (8, N) and one of shape "
        "(N, 8). The result on every rank is the tuple of their sums over all ranks, in the order of the arguments and "
        "in their dtype. The order of summation is free. The arguments may be overwritten, and the results may be the "
        "arguments themselves. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"N": 1024},
    cpu_sizes={"N": 4096},
    check_sizes={"N": 64},
    hidden_sizes=hidden_sizes,
    hidden_property="N is odd",
    draws={
        "exact": "stress: small integers, every partial sum is exact: compared bit for bit",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e3",
        "mixed": "stress: rows with amplitudes from 1e-2 to 1e2",
        "subgroups": "structured: two groups, the even ranks and the odd ranks",
    },
    skip_draw=lacks_subgroups,
    may_mutate=GRADIENTS,
    may_alias=GRADIENTS,
    permutable=True,
    communication="all_reduce SUM of (8, N)\nall_reduce SUM of (8, N)\nall_reduce SUM of (N, 8)",
    hazards=(
        "The reference overwrites its arguments, so every call needs fresh ones.",
        "The messages are small: three launches or one decide the time.",
        "bf16 partial sums rounded at every hop lose precision; fp32 accumulation is welcome.",
    ),
    tolerances=calibrated(bf16=1.13e-2, fp16=2e-3),
)
