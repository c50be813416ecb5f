"""Expert-parallel MoE: how many rows travel between which ranks, from the routing of every rank.

Legend: M tokens of one rank, E = 8 experts, K = 2 picks per token, W ranks, L = E/W; rank r owns experts r L to
(r+1) L - 1; s a source, d a destination, l a local expert.

    c_s[x] = sum over slots and tokens of expert_mask_s[x, :, :]                          expert_mask (E, K, M), c (E,)
    input_splits[d] = sum over l of c_r[d L + l]                                          (W,)
    per_local_expert[s, l] = c_s[r L + l]                                                 (W, L)
    output_splits[s] = sum over l of per_local_expert[s, l]                               (W,)
    sum_per_local_expert[l] = sum over s of per_local_expert[s, l]                        (L,)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional, Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost
from problems.suite.families.moe import divides
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter

E, K = 8, 2


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Both slots of a token drawn with probability proportional to 1 + x, x turned by the rank; repeats are possible.

    The mask is a permuted view of an (M, K, E) buffer, as the workload has it; "contiguous" is not. "narrow": all
    tokens of a rank go to two experts, so that most counts are zero.
    """
    W, M = case.world_size, case["M"]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: list[Args] = []
    for r in range(W):
        bounds = torch.arange(1.0, E + 1).cumsum(0) / (E * (E + 1) / 2)
        experts = (torch.bucketize(rng.uniform(r, (M, K)), bounds).clamp(max=E - 1) + 3 * r) % E
        if case.draw == "narrow":
            experts = (experts % 2 + 3 * r) % E
        one_hot = (experts.unsqueeze(2) == torch.arange(E)).to(torch.float32)
        mask = one_hot.permute(2, 1, 0)
        mask = mask.contiguous() if case.draw == "contiguous" else mask
        ranks.append({"expert_mask": mask, "num_experts": E, "group": group})
    return ranks


def solution(
    expert_mask: torch.Tensor, num_experts: int, group: Optional[dist.ProcessGroup] = None
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    L = num_experts // W
    counts = expert_mask.sum(dim=(1, 2))
    gathered = counts.new_empty(W * num_experts)
    dist.all_gather_into_tensor(gathered, counts, group=group)
    input_splits = counts.view(W, L).sum(dim=1).to(torch.int64)
    per_local_expert = gathered.view(W, num_experts)[:, r * L : (r + 1) * L].contiguous()
    output_splits = per_local_expert.sum(dim=1).to(torch.int64)
    # The host needs them: they become the sizes of an exchange.
    return input_splits.cpu(), output_splits.cpu(), per_local_expert.cpu(), per_local_expert.sum(dim=0).cpu()


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, _counted)


def _counted(args: list[Args]) -> list[Expected]:
    W = len(args)
    picks = torch.stack([(a["expert_mask"] != 0).sum(dim=(1, 2)) for a in args]).view(W, W, E // W)  # (source, rank, l)
    expected = []
    for r in range(W):
        own = picks[:, r]
        expected.append(
            Expected(
                (
                    Leaf(picks[r].sum(dim=1), torch.int64, Exact(), device="cpu"),
                    Leaf(own.sum(dim=1), torch.int64, Exact(), device="cpu"),
                    Leaf(own, torch.float32, Exact(), device="cpu"),
                    Leaf(own.sum(dim=0), torch.float32, Exact(), device="cpu"),
                )
            )
        )
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """E K M additions; the mask read once, results written; to each rank the L counts of its experts, 4 bytes each."""

    def costs(members: list[Args]) -> list[RankCost]:
        W = len(members)
        L = E // W
        links = all_to_all_cost([[4.0 * L] * W for _ in range(W)], flops={}, hbm=[0.0] * W)
        ranks = []
        for own, link in zip(members, links, strict=True):
            size = own["expert_mask"].numel()
            hbm = 4.0 * size + 16 * W + 4 * E + 4 * L
            ranks.append(RankCost({"fp32": float(size)}, hbm, link.sent, link.received))
        return ranks

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M",))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    return divides(world_size, E)


PROBLEM = Problem(
    id=26,
    slug="moe_token_preprocess",
    title="Expert-parallel MoE: exchange of routing counts",
    type="expert",
    also=(),
    domain="llm_training",
    stage="preprocessing",
    origin="Together AI xorl, after ByteDance VeOmni moe_layer.py: preprocess",
    difficulty=2,
    statement=(
        "`expert_mask` (E, K, M), float32, is one-hot over the `num_experts` E experts for each of the K slots of each "
        "token; both slots of a token may name one expert, and the mask may be a strided view. Rank r owns the L = E/W "
        "experts r·L to (r+1)·L - 1. The result is a tuple of four tensors **in host memory**: `input_splits` (W,) "
        "int64, picks of this rank per destination rank; `output_splits` (W,) int64, picks per source rank of the "
        "experts owned here; `per_local_expert` (W, L) float32, the same for each expert; and its column sums (L,) "
        "float32. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024},
    cpu_sizes={"M": 16384},
    check_sizes={"M": 200},
    hidden_sizes=hidden_sizes,
    hidden_property="the number of tokens is odd",
    draws={
        "contiguous": "structured: a contiguous mask",
        "narrow": "structured: a rank uses two experts only, most counts are zero",
        "subgroups": "structured: two groups, the even ranks and the odd ranks",
    },
    world_size_rule=world_size_rule,
    skip_draw=lacks_subgroups,
    local_outputs=("output.0",),
    waivers=dict.fromkeys(
        ("lower_precision", "narrow_inputs", "narrow_outputs"),
        "Masks of zeros and ones and small counts are exact in the next narrower format.",
    ),
    run_dtypes=(torch.float32,),
    communication="all_gather of E counts, float32, over the world group",
    hazards=(
        "All four results live in host memory: copies from the device are part of the operation.",
        "The mask is a strided view; reading it as if it were contiguous counts wrong elements.",
        "A token may count twice for one expert.",
        "The sum of the input splits is the same on every rank, so only the single counts tell anything.",
    ),
)
