"""Clipping of sharded gradients by their global norm, in place.

Legend: G a list of gradients of one rank, entries may be None; p the norm's order, finite and above 0; q a rank of the
group, W its size.

    T = (sum over q of sum over all x in G_q of |x|^p)^(1/p)                                          fp32, one number
    G_r = G_r * max_norm / T    if T > max_norm, else unchanged                                       in place
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import List, Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_reduce_cost, element_size
from problems.suite.families.clipping import (
    NORM_RULE,
    clipped,
    elements,
    gradient,
    parts,
    power,
    scale_in_place,
    sum_of_powers,
    threshold,
)
from problems.suite.groups import contiguous, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter

COUNT = 3


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Gradients with scales of their own, so that the norm cannot be guessed; max_norm a part or a multiple of it."""
    W, shape = case.world_size, (case["M"], case["N"])
    group = {"subgroups": even_and_odd(W), "no_group": None}.get(case.draw, contiguous(W, W))
    p = 3.0 if case.draw == "cubes" else 2.0
    shapes = [shape, (case["N"],), None, (case["M"], 2, 3)] if case.draw == "ragged" else [shape] * COUNT
    grads = [[None if s is None else gradient(case, rng, r, s) for s in shapes] for r in range(W)]
    limits: dict[int, float] = {}
    for part in parts(group, W):
        norm = float(sum(power(grads[r], p) for r in part)) ** (1.0 / p)
        limits |= dict.fromkeys(part, threshold(case, rng, norm, part))
    return [{"grad_tensors": grads[r], "max_norm": limits[r], "norm_type": p, "fsdp_group": group} for r in range(W)]


def solution(
    grad_tensors: List[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    fsdp_group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    device = next((g.device for g in grad_tensors if g is not None), torch.device("cpu"))
    total = sum_of_powers(grad_tensors, norm_type, device)
    if fsdp_group is not None:
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=fsdp_group)
    total_norm = total ** (1.0 / norm_type)
    if total_norm > max_norm:
        scale_in_place(grad_tensors, max_norm / total_norm)
    return total_norm


def norms(args: list[Args]) -> list[torch.Tensor]:
    """The norm of every rank's group, in float64."""
    found: dict[int, torch.Tensor] = {}
    for part in parts(args[0]["fsdp_group"], len(args)):
        p = args[part[0]]["norm_type"]
        total = torch.stack([power(args[r]["grad_tensors"], p) for r in part]).sum()
        found |= dict.fromkeys(part, total ** (1.0 / p))
    return [found[r] for r in range(len(args))]


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return [
        Expected(
            Leaf(norm, torch.float32, NORM_RULE),
            {"grad_tensors": clipped(a["grad_tensors"], norm, a["max_norm"], case.dtype)},
        )
        for a, norm in zip(args, norms(args), strict=True)
    ]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """3 flops per element (square, add, scale); each read once and, if clipped, written once; one fp32 number reduced.

    That is 9 M N flops and 6 M N e bytes for three tensors. Reading them twice is what gradients that do not fit on
    chip need; it is not counted.
    """
    costs: dict[int, RankCost] = {}
    every_norm = norms(args)
    for part in parts(args[0]["fsdp_group"], len(args)):
        for r in part:
            count = elements(args[r]["grad_tensors"])
            clips = bool(every_norm[r] > args[r]["max_norm"])
            hbm = float(count * element_size(case.dtype) * (2 if clips else 1) + 4)
            flops = {"fp32": (3.0 if clips else 2.0) * count}
            costs[r] = all_reduce_cost(len(part), 4, flops=flops, hbm=hbm)[0]
    return [costs[r] for r in range(len(args))]


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=21,
    slug="clip_grad_norm_no_ep",
    title="Global gradient-norm clipping over sharded gradients",
    type="sharded_data",
    also=("data",),
    domain="llm_training",
    stage="optimizer",
    origin="ByteDance VeOmni veomni/distributed/fsdp2/clip_grad_norm.py (also in Together AI xorl)",
    difficulty=2,
    statement=(
        "Every rank holds its shards of the gradients, a list of tensors of any shape (three of shape (M, N) in the "
        "public case); entries may be None and are skipped. The global norm is the `norm_type`-norm over all elements "
        "of all tensors of all ranks of `fsdp_group`: the powers are summed in fp32 whatever the dtype of the "
        "gradients. If it is greater than `max_norm`, every gradient is multiplied **in place** by max_norm / norm, "
        "else it keeps its bits. The result is the norm before clipping, a 0-dimensional fp32 tensor, the same on all "
        "ranks of the group. Without a group there is no reduction: a rank clips by its own norm. Norm and gradients "
        "after the call are both judged."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 512},
    check_sizes={"M": 24, "N": 40},
    hidden_sizes=hidden_sizes,
    hidden_property="M and N are odd, so no tensor is a multiple of 16 bytes",
    draws={
        "no_clip": "structured: max_norm above the norm, the gradients keep their bits",
        "ragged": "structured: gradients of three different shapes and one None",
        "cubes": "structured: norm_type 3",
        "no_group": "structured: no group, every rank by itself; every other rank clips",
        "subgroups": "structured: two groups, the even ranks clip and the odd ranks do not",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e3",
        "mixed": "stress: rows with amplitudes from 1e-2 to 1e2",
    },
    skip_draw=lacks_subgroups,
    may_mutate=("grad_tensors",),
    communication="all_reduce SUM of one fp32 number over fsdp_group",
    hazards=(
        "The gradients are changed in place, so every call needs fresh ones: the second call on the same ones sees a "
        "norm of max_norm and may clip or not by rounding.",
        "Only the norm is returned, but the clipped gradients are the purpose.",
        "Testing the norm on the host waits for the device.",
        "On CUDA, a bf16 gradient times a 0-dimensional fp32 tensor rounds the factor to bf16 first; both are right.",
    ),
)
