"""Expert-parallel MoE layer, forward, two experts per rank.

Legend: M tokens of one rank, N hidden width, E = 2 W experts, K = 2 picks, I = 128 inner width, W ranks;
expert x lives on rank x // 2, and both experts of a rank share the rank's one network.

    p[t] = softmax(gate_weight @ hidden[t] + gate_bias);  S[t] = the K experts with the largest p[t, x]
    network_d(v) = down_d(silu(gate_d(v)) * up_d(v))                     gate, up: N -> I, down: I -> N, with bias
    out[t] = sum over x in S[t] of p[t, x] * network_x // 2(hidden[t])                               out (M, N)

Every rank routes its tokens with its own router.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

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
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter

L, K, I = 2, 2, 128  # noqa: E741


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Routing with a margin and outputs of order 1, see ``layer_inputs``; networks and routers differ by rank.

    The published draw is nearly one-hot, and in bf16 it has ties.
    """
    W = case.world_size
    group = even_and_odd(W) if case.draw == "subgroups" else None
    E = L * W if group is None else L * W // 2
    layers = [layer_inputs(case, rng, r, E, K, I, idle=range(E - L, E)) for r in range(W)]
    return [{**layer, "num_experts": E, "top_k": K, "group": group} for layer in layers]


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

    return moe_layer(hidden_states, gate_weight, gate_bias, network, num_experts, top_k, group)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, lambda members: layer_oracle(case, members, swiglu64))


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """See ``layer_cost``: router and three products per row; rows travel, or the networks where those are smaller."""
    return by_group(args, lambda members: layer_cost(case, members))


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M",), multiple={"N": 8})


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    return wide_enough(sizes, L * world_size)


PROBLEM = Problem(
    id=50,
    slug="moe_ep_wide",
    title="Expert-parallel MoE layer, forward, two experts per rank (wide)",
    type="expert",
    also=(),
    domain="llm_training",
    stage="forward",
    origin="ByteDance VeOmni (also Together AI xorl): preprocess, token_pre_all2all, tokens_post_all2all as one layer",
    difficulty=4,
    statement=(
        "A mixture-of-experts layer with two experts on each rank: `num_experts` is 2W, and rank d holds the experts "
        "2d and 2d + 1. Router: softmax over the experts of hidden·gate_weightᵀ + gate_bias (`gate_bias` may be None), "
        "then the `top_k` largest probabilities of every token, not renormalised. Expert network of a rank, shared by "
        "both its experts: down_proj(silu(gate_proj(v))·up_proj(v)); it differs from rank to rank, and so does the "
        "router. The result on a rank, (M, N) in the run dtype, is for each of its own tokens the sum over the picks x "
        "of probability times the network of rank x // 2 applied to the token. Products accumulate in fp32. Row counts "
        "depend on the data and may be zero. `group` None means the world group."
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
    skip_draw=lacks_subgroups,
    communication=(
        "all_gather of E counts, int64\nall_to_all_single with sizes, rows to the experts\n"
        "all_to_all_single with sizes, rows back"
    ),
    hazards=(
        "Row counts depend on the data; a plain implementation reads them on the host, and blocks may be empty.",
        "The router's weights are not renormalised.",
        "Both experts of a rank share one network: two picks on one rank can share a row.",
        "Gathering the networks instead of moving tokens is legal and may be cheaper.",
    ),
    tolerances=TOLERANCES,
)
