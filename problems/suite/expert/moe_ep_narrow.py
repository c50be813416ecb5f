"""Expert-parallel MoE layer, forward, fewer experts than ranks.

Legend: M tokens of one rank, N hidden width, E experts, K = min(2, E) picks, I = 128 inner width, W ranks;
E is the largest proper divisor of W. Consecutive blocks of E ranks form groups; expert x lives on member x of each.

    p[t] = softmax(gate_weight @ hidden[t] + gate_bias);  S[t] = the K experts with the largest p[t, x]
    network_d(v) = down_d(silu(gate_d(v)) * up_d(v))                     gate, up: N -> I, down: I -> N, with bias
    out[t] = sum over x in S[t] of p[t, x] * network_x of the group(hidden[t])                               out (M, N)

Every rank routes its tokens with its own router. With W = 2 there is one expert and nothing to send; with W = 4 every
token visits both experts of its group; only W >= 6 routes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Dict, Optional, Tuple

import torch
import torch.distributed as dist
import torch.nn.functional as F

from problems.suite.base import Args, Case, Expected, Problem, RankCost, Rng
from problems.suite.families.moe import (
    TOLERANCES,
    layer_cost,
    layer_inputs,
    layer_oracle,
    moe_layer,
    swiglu64,
    wide_enough,
)
from problems.suite.groups import by_group, contiguous, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter

I = 128  # noqa: E741
_groups: Dict[Tuple[int, int], Optional[dist.ProcessGroup]] = {}


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Routing with a margin and outputs of order 1, see ``layer_inputs``; networks and routers differ by rank.

    The published draw is nearly one-hot, and in bf16 it has ties.
    """
    W = case.world_size
    group = even_and_odd(W) if case.draw == "subgroups" else None
    E = experts(W)
    K = min(2, E)
    layers = [layer_inputs(case, rng, r, E, K, I, idle=[E - 1]) for r in range(W)]
    return [{**layer, "num_experts": E, "top_k": K, "group": group} for layer in layers]


def experts(world_size: int) -> int:
    """Largest proper divisor of the world size, 1 if there is none."""
    return max([1, *(d for d in range(2, world_size // 2 + 1) if world_size % d == 0)])


def narrow_group(num_experts: int) -> Optional[dist.ProcessGroup]:
    """The own block of ``num_experts`` consecutive ranks; None, the world group, where that would be all ranks."""
    W, r = dist.get_world_size(), dist.get_rank()
    if num_experts >= W:
        return None
    if W % num_experts != 0:
        raise ValueError(f"{W} ranks cannot form groups of {num_experts}")
    if (W, num_experts) not in _groups:
        for first in range(0, W, num_experts):  # every rank makes every group, in the same order
            made = dist.new_group(list(range(first, first + num_experts)))
            if first <= r < first + num_experts:
                _groups[W, num_experts] = made
    return _groups[W, num_experts]


def solution(
    hidden_states: torch.Tensor,
    gate_weight: torch.Tensor,
    gate_bias: Optional[torch.Tensor],
    gate_proj: torch.nn.Linear,
    up_proj: torch.nn.Linear,
    down_proj: torch.nn.Linear,
    num_experts: int,
    top_k: int,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    def network(x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = down_proj(F.silu(gate_proj(x)) * up_proj(x))
        return y

    if group is None:
        group = narrow_group(num_experts)
    return moe_layer(hidden_states, gate_weight, gate_bias, network, num_experts, top_k, group)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(_with_groups(args), lambda members: layer_oracle(case, members, swiglu64))


def _with_groups(args: list[Args]) -> list[Args]:
    """The arguments with the narrow groups where none is given."""
    groups = contiguous(len(args), args[0]["num_experts"])
    return [{**own, "group": own["group"] or groups} for own in args]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """See ``layer_cost``: router and three products per row; rows travel, or the networks where those are smaller."""
    return by_group(_with_groups(args), lambda members: layer_cost(case, members))


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M",), multiple={"N": 8})


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    return wide_enough(sizes, experts(world_size))


def skip_draw(case: Case) -> bool:
    forced = case.draw in ("idle", "popular") and experts(case.world_size) <= 2  # every token visits all experts
    return forced or lacks_subgroups(case)


def reads(rank: int, peer: int, world_size: int) -> bool:
    return rank // experts(world_size) == peer // experts(world_size)


PROBLEM = Problem(
    id=51,
    slug="moe_ep_narrow",
    title="Expert-parallel MoE layer, forward, fewer experts than ranks (narrow)",
    type="expert",
    also=("data",),
    domain="llm_training",
    stage="forward",
    origin="ByteDance VeOmni (also Together AI xorl): preprocess, token_pre_all2all, tokens_post_all2all as one layer",
    difficulty=4,
    statement=(
        "A mixture-of-experts layer with fewer experts than ranks: `num_experts` E is the largest proper divisor of W "
        "(W = 2: 1, 4: 2, 6: 3, 8: 4), and consecutive blocks of E ranks are groups that work independently, one "
        "expert per member. `group` None selects these groups, not the world; a group that is given is used as it is. "
        "Router: softmax over the experts of hidden·gate_weightᵀ + gate_bias (`gate_bias` may be None), then the "
        "`top_k` largest probabilities of every token, not renormalised. Expert network of a rank: "
        "down_proj(silu(gate_proj(v))·up_proj(v)); it differs from rank to rank, and so does the router. The result on "
        "a rank, (M, N) in the run dtype, is for each of its own tokens the sum over the picks x of probability times "
        "the network of member x of its group applied to the token. Products accumulate in fp32. Row counts depend on "
        "the data and may be zero."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 128, "N": 64},
    check_sizes={"M": 136, "N": 32},
    hidden_sizes=hidden_sizes,
    hidden_property="the number of tokens is odd, the hidden width is a multiple of 8 only",
    draws={
        "idle": "structured: no token wants an expert of the last rank",
        "popular": "structured: every token wants expert 0",
        "no_bias": "structured: a router without bias",
        "subgroups": "structured: two layers, one on the even ranks and one on the odd ranks",
    },
    world_size_rule=world_size_rule,
    skip_draw=skip_draw,
    reads=reads,
    waivers={
        "local_only/2": "With two ranks every group has one rank: by definition nothing is exchanged.",
    },
    communication=(
        "in groups of E ranks:\nall_gather of E counts, int64\nall_to_all_single with sizes, rows to the experts\n"
        "all_to_all_single with sizes, rows back"
    ),
    hazards=(
        "Row counts depend on the data; a plain implementation reads them on the host, and blocks may be empty.",
        "The router's weights are not renormalised.",
        "With two ranks nothing is sent; with four every token visits both experts of its group.",
        "Making process groups is collective over all ranks and slow: once, on the first call.",
        "Gathering the networks instead of moving tokens is legal and may be cheaper.",
    ),
    tolerances=TOLERANCES,
)
