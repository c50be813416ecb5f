"""Clipping of gradients by their global norm where a part of them belongs to experts spread over ranks, in place.

Legend: A and B lists of gradients of one rank (not of experts, of experts), entries may be None; p the norm's order,
finite and above 0; E = ep_size; q a rank. Groups: fsdp_group for A; ep_fsdp_group, then ep_group for B.

    B_r = B_r / E                                                                                     in place, if E > 1
    T = (sum over q of |A_q|^p + sum over q of |B_q|^p)^(1/p), |X|^p = sum of |x|^p over all of X     fp32, one number
    A_r, B_r = A_r * max_norm / T, B_r * max_norm / T    if T > max_norm, else unchanged              in place
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import List, Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Group, Leaf, Problem, RankCost, Rng, store, wide
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
from problems.suite.groups import contiguous, strided
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Gradients with scales of their own; max_norm a part or a multiple of the norm that they have.

    Experts are spread over E = max(1, W / 2) ranks, so two ranks have none spread; "one_block" spreads them over all W.
    """
    W, shape = case.world_size, (case["M"], case["N"])
    E = W if case.draw == "one_block" else max(1, W // 2)
    spread = E > 1 and W % E == 0
    groups: dict[str, Group | None] = {
        "fsdp_group": contiguous(W, W),
        "ep_fsdp_group": strided(W, E) if spread else contiguous(W, W),
        "ep_group": contiguous(W, E) if spread else None,
    }
    if case.draw == "no_group":
        groups = dict.fromkeys(groups)
    p = 3.0 if case.draw == "cubes" else 2.0
    ragged = [shape, None, (case["M"], 2, 3)]
    shapes_a = ragged if case.draw == "ragged" else [shape]
    shapes_b = {"ragged": [*ragged, (case["N"],)], "no_experts": []}.get(case.draw, [shape])
    ranks: list[Args] = []
    for r in range(W):
        ranks.append(
            {
                "non_ep_grad_tensors": [None if s is None else gradient(case, rng, r, s) for s in shapes_a],
                "ep_grad_tensors": [None if s is None else gradient(case, rng, r, s) for s in shapes_b],
                "max_norm": 0.0,
                "norm_type": p,
                "ep_size": E,
                **groups,
            }
        )
    for part in parts(groups["fsdp_group"], W):
        limit = threshold(case, rng, float(norms(case, ranks)[part[0]]), part)
        for r in part:
            ranks[r]["max_norm"] = limit
    return ranks


def solution(
    non_ep_grad_tensors: List[torch.Tensor],
    ep_grad_tensors: List[torch.Tensor],
    max_norm: float,
    norm_type: float = 2.0,
    ep_size: int = 1,
    fsdp_group: Optional[dist.ProcessGroup] = None,
    ep_fsdp_group: Optional[dist.ProcessGroup] = None,
    ep_group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    every = [*non_ep_grad_tensors, *ep_grad_tensors]
    device = next((g.device for g in every if g is not None), torch.device("cpu"))
    if ep_size > 1:
        scale_in_place(ep_grad_tensors, 1.0 / ep_size)
    total = sum_of_powers(non_ep_grad_tensors, norm_type, device)
    if fsdp_group is not None:
        dist.all_reduce(total, op=dist.ReduceOp.SUM, group=fsdp_group)
    of_experts = sum_of_powers(ep_grad_tensors, norm_type, device)
    # Together the two groups reach every rank once.
    for group in (ep_fsdp_group, ep_group):
        if group is not None:
            dist.all_reduce(of_experts, op=dist.ReduceOp.SUM, group=group)
    total_norm = (total + of_experts) ** (1.0 / norm_type)
    if total_norm > max_norm:
        scale_in_place(every, max_norm / total_norm)
    return total_norm


def divided(case: Case, a: Args) -> list[torch.Tensor | None]:
    """Expert gradients after the division, which is stored in the run dtype; float64."""
    return [None if g is None else store(wide(g) / a["ep_size"], case.dtype) for g in a["ep_grad_tensors"]]


def norms(case: Case, args: list[Args]) -> list[torch.Tensor]:
    """The norm on every rank, in float64. The groups either tile the world or are all absent."""
    found: dict[int, torch.Tensor] = {}
    for part in parts(args[0]["fsdp_group"], len(args)):
        p = args[part[0]]["norm_type"]
        powers = [power([*args[r]["non_ep_grad_tensors"], *divided(case, args[r])], p) for r in part]
        found |= dict.fromkeys(part, torch.stack(powers).sum() ** (1.0 / p))
    return [found[r] for r in range(len(args))]


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    expected = []
    for a, norm in zip(args, norms(case, args), strict=True):
        mutated = {
            "non_ep_grad_tensors": clipped(a["non_ep_grad_tensors"], norm, a["max_norm"], case.dtype),
            "ep_grad_tensors": clipped(divided(case, a), norm, a["max_norm"], case.dtype),
        }
        expected.append(Expected(Leaf(norm, torch.float32, NORM_RULE), mutated))
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 flops per element for the norm, 1 to clip it and 1 to divide it if it is an expert's: 7 M N in all.

    Read once, and written once where it changes: 4 M N e bytes. One fp32 number is reduced, for the two expert groups
    tile the world and both sums are only needed together.
    """
    costs: dict[int, RankCost] = {}
    every_norm = norms(case, args)
    for part in parts(args[0]["fsdp_group"], len(args)):
        for r in part:
            a, b = elements(args[r]["non_ep_grad_tensors"]), elements(args[r]["ep_grad_tensors"])
            clips, divides = bool(every_norm[r] > args[r]["max_norm"]), args[r]["ep_size"] > 1
            written = (a if clips else 0) + (b if clips or divides else 0)
            hbm = float((a + b + written) * element_size(case.dtype) + 4)
            flops = (3.0 if clips else 2.0) * (a + b) + (b if divides else 0)
            costs[r] = all_reduce_cost(len(part), 4, flops={"fp32": flops}, hbm=hbm)[0]
    return [costs[r] for r in range(len(args))]


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


PROBLEM = Problem(
    id=22,
    slug="clip_grad_norm_ep",
    title="Global gradient-norm clipping with expert-parallel gradients",
    type="sharded_data",
    also=("expert", "data"),
    domain="llm_training",
    stage="optimizer",
    origin=("ByteDance VeOmni veomni/distributed/fsdp2/clip_grad_norm.py: ep_fsdp2_clip_grad_norm (also in xorl)"),
    difficulty=3,
    statement=(
        "Every rank holds two lists of gradients: `non_ep_grad_tensors`, shards over `fsdp_group`, and "
        "`ep_grad_tensors`, those of the experts that the rank owns; each (M, N) in the public case, any shape in "
        "general, and entries may be None. If `ep_size` > 1, every expert gradient is first multiplied **in place** by "
        "1/ep_size. The global norm is the `norm_type`-norm over all elements of all ranks, the expert gradients after "
        "that division: the powers, in fp32, are summed over `fsdp_group` for the first list, and over "
        "`ep_fsdp_group` and then `ep_group` for the second; a group that is None is skipped. The two expert groups "
        "together reach every rank exactly once. If the norm is greater than `max_norm`, every gradient of both lists "
        "is multiplied **in place** by max_norm / norm. The result is the norm before clipping, a 0-dimensional fp32 "
        "tensor. Norm and both lists after the call are judged."
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
        "no_clip": "structured: max_norm above the norm; expert gradients are divided nevertheless",
        "one_block": "structured: experts spread over all ranks, so that ep_fsdp_group has one rank",
        "ragged": "structured: lists of different length and shapes, with None",
        "no_experts": "structured: no expert gradients",
        "cubes": "structured: norm_type 3",
        "no_group": "structured: no groups, every rank by itself; every other rank clips",
        "small": "stress: values scaled by 1e-3",
        "large": "stress: values scaled by 1e3",
        "mixed": "stress: rows with amplitudes from 1e-2 to 1e2",
    },
    may_mutate=("non_ep_grad_tensors", "ep_grad_tensors"),
    communication=(
        "all_reduce SUM of one fp32 number over fsdp_group\n"
        "all_reduce SUM of one fp32 number over ep_fsdp_group, then over ep_group"
    ),
    hazards=(
        "The gradients are changed in place, expert gradients by every call: calls need fresh ones.",
        "Only the norm is returned, but the clipped gradients are the purpose.",
        "One reduction of one number over all ranks does what the reference does with three.",
        "With two ranks the public ep_size is 1: no division and no ep_group.",
        "Testing the norm on the host waits for the device.",
        "On CUDA, a bf16 gradient times a 0-dimensional fp32 tensor rounds the factor to bf16 first; both are right.",
    ),
)
