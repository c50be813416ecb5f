"""Expert-parallel MoE combine: regroup by source, all-to-all back, weighted sum per token.

Legend: M tokens of one rank, N hidden width, E experts, K = 2 picks per token, W ranks, L = E/W, x an expert, t a
token, s a source, l a local expert.

    by_source = expert_outputs in L W chunks of sizes num_global_tokens_per_local_expert[s, l], l outer and s inner,
                brought into the order s outer and l inner                                                    (Q, N)
    returned = block from rank 0, block from rank 1, ...: output_splits[s] rows of by_source go to rank s,
               input_splits[d] rows come back from rank d                                                     (P, N)
    D[t, x] = sum over the slots j with selected_experts[t, j] = x of routing_weights[t, j]                   (M, E)
    w_0, w_1, ... = D[t, x] at all (x, t) with routing_map[x, t], x ascending, then t ascending               (P,)
    output[t] = sum over the rows i with local_input_permutation_mapping[i] = t of w_i * returned[i]          (M, N)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import List, Optional, Union

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, wide
from problems.suite.costs import element_size
from problems.suite.draws import scaled_normal
from problems.suite.families.exchange import travelling_rows
from problems.suite.families.moe import divides
from problems.suite.families.moe_routing import (
    as_list,
    dispatch_sizes,
    even_splits,
    pick_mask,
    skewed_picks,
    splits,
    transpose_chunks,
)
from problems.suite.golden import sin_rule
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.groups import members as group_members
from problems.suite.shapes import jitter

E, K = 8, 2


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal rows, weights of 0.1 to 0.9 that do not add up to 1, skewed routing and the sizes that follow.

    "even": the published sizes, cut evenly whatever the routing; "idle": nobody used the last rank's experts;
    "tensors": sizes as tensors, counts in float32.
    """
    W, M = case.world_size, case["M"]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: dict[int, Args] = {}
    for part in group_members(group, W):
        n = len(part)
        picks = [skewed_picks(case.draw, rng, r, M, E, K, idle=range(E - E // n, E)) for r in part]
        counts = dispatch_sizes(picks, E)
        for place, (r, own) in enumerate(zip(part, picks, strict=True)):
            sizes = even_splits(M, K, n, E // n) if case.draw == "even" else splits(counts, place)
            rows = scaled_normal(rng, r, (sum(sizes[1]), case["N"]), case.draw)
            weights = 0.1 + 0.8 * rng.uniform(r, (M, K))
            experts = own.sort(dim=1).values
            ranks[r] = _arguments(rows.to(case.dtype), weights.to(case.dtype), experts, sizes)
            if case.draw == "tensors":
                for name in ("input_splits", "output_splits"):
                    ranks[r][name] = torch.tensor(ranks[r][name])
                table = ranks[r]["num_global_tokens_per_local_expert"]
                ranks[r]["num_global_tokens_per_local_expert"] = table.to(torch.float32)
            ranks[r]["group"] = group
    return [ranks[r] for r in range(W)]


def _arguments(
    rows: torch.Tensor,
    weights: torch.Tensor,
    experts: torch.Tensor,
    sizes: tuple[list[int], list[int], torch.Tensor],
) -> Args:
    """Arguments of one rank from the rows it computed, its own tokens' picks, and its sizes."""
    routing_map = pick_mask(experts, E).sum(dim=1) > 0
    return {
        "expert_outputs": rows,
        "routing_weights": weights,
        "selected_experts": experts,
        "num_experts": E,
        "input_splits": sizes[0],
        "output_splits": sizes[1],
        "num_global_tokens_per_local_expert": sizes[2],
        "routing_map": routing_map,
        "local_input_permutation_mapping": routing_map.nonzero()[:, 1].contiguous(),
        "org_hidden_states_shape": torch.Size([len(experts), rows.shape[1]]),
        "group": None,
    }


def solution(
    expert_outputs: torch.Tensor,
    routing_weights: torch.Tensor,
    selected_experts: torch.Tensor,
    num_experts: int,
    input_splits: Union[List[int], torch.Tensor],
    output_splits: Union[List[int], torch.Tensor],
    num_global_tokens_per_local_expert: torch.Tensor,
    routing_map: torch.Tensor,
    local_input_permutation_mapping: torch.Tensor,
    org_hidden_states_shape: torch.Size,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    sizes = num_global_tokens_per_local_expert.t().to(torch.int64).tolist()  # [local expert][source]
    by_source = transpose_chunks(expert_outputs, sizes)
    # What was received at the dispatch goes back, what was sent comes back.
    send_sizes, receive_sizes = as_list(output_splits), as_list(input_splits)
    returned = expert_outputs.new_empty((sum(receive_sizes), expert_outputs.shape[1]))
    dist.all_to_all_single(returned, by_source, receive_sizes, send_sizes, group=group)
    dense = routing_weights.new_zeros((len(routing_weights), num_experts))
    dense.scatter_add_(1, selected_experts, routing_weights)
    weights = dense.t()[routing_map]  # experts outer, tokens inner, like the rows
    output = expert_outputs.new_zeros(org_hidden_states_shape)
    return output.index_add_(0, local_input_permutation_mapping, returned * weights.unsqueeze(1))


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, lambda members: _combined(case, members))


def _combined(case: Case, args: list[Args]) -> list[Expected]:
    blocks = []
    for a in args:
        table = a["num_global_tokens_per_local_expert"].to(torch.int64).t()  # (L, W)
        ends = table.flatten().cumsum(0).view(table.shape)
        rows = wide(a["expert_outputs"])
        chunks = [
            rows[int(ends[x, s] - table[x, s]) : int(ends[x, s])]
            for s in range(table.shape[1])
            for x in range(table.shape[0])
        ]
        blocks.append(torch.split(torch.cat(chunks), as_list(a["output_splits"])))
    expected = []
    for r, a in enumerate(args):
        returned = torch.cat([blocks[d][r] for d in range(len(args))])
        M = len(a["selected_experts"])
        weight = torch.zeros(E, M, dtype=torch.float64)
        for j in range(a["selected_experts"].shape[1]):
            weight[a["selected_experts"][:, j], torch.arange(M)] += wide(a["routing_weights"])[:, j]
        of_row = weight[a["routing_map"]]
        receives = torch.arange(M).unsqueeze(1) == a["local_input_permutation_mapping"].unsqueeze(0)  # (M, P)
        expected.append(Expected(Leaf((receives * of_row) @ returned, case.dtype)))
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """A product and a sum per element that comes back; rows, weights and index tables read, results written.

    Link: rows of one token that come from the same rank can be added there, so one row per token and rank.
    """

    def costs(members: list[Args]) -> list[RankCost]:
        e, N = element_size(case.dtype), members[0]["expert_outputs"].shape[1]
        tokens = [torch.split(a["local_input_permutation_mapping"], as_list(a["input_splits"])) for a in members]
        ids = [[tokens[r][d] for r in range(len(members))] for d in range(len(members))]
        flops, hbm = [], []
        for a in members:
            M, P, Q = len(a["selected_experts"]), len(a["local_input_permutation_mapping"]), len(a["expert_outputs"])
            tables = 8 * P + (8 + e) * a["selected_experts"].numel() + a["routing_map"].numel()
            flops.append({"fp32": 2.0 * P * N})
            hbm.append(float((Q + M) * N * e + tables))
        return travelling_rows(ids, N * e, flops=flops, hbm=hbm, reduced=True)

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    return divides(world_size, E)


def skip_draw(case: Case) -> bool:
    return lacks_subgroups(case) or (case.draw == "even" and K * case["M"] % case.world_size != 0)


def golden_inputs(name: str, world_size: int) -> list[Args]:
    """Eight tokens of width 4 with the routing of the closed rule and its true sizes."""
    t = torch.arange(8)
    picks = [torch.stack([(3 * t + r) % E, (3 * t + r + 1 + t % 5) % E], dim=1) for r in range(world_size)]
    counts = dispatch_sizes(picks, E)
    ranks: list[Args] = []
    for r in range(world_size):
        sizes = splits(counts, r)
        rows = sin_rule([sum(sizes[1]), 4], rank=r, k=0)
        ranks.append(_arguments(rows, sin_rule([8, 2], rank=r, k=1, scale=0.25, offset=0.5), picks[r], sizes))
    return ranks


PROBLEM = Problem(
    id=29,
    slug="moe_post_all2all",
    title="MoE combine: regroup by source, all-to-all back, weighted sum per token",
    type="expert",
    also=(),
    domain="llm_training",
    stage="forward",
    origin="Together AI xorl, after ByteDance VeOmni moe_layer.py: tokens_post_all2all",
    difficulty=3,
    statement=(
        "Combine of a mixture-of-experts layer with E experts, L = E/W consecutive ones per rank. `expert_outputs` "
        "lies in chunks of `num_global_tokens_per_local_expert[s, l]` rows with the local expert l outside and the "
        "source s inside; bring them into the order s outside, l inside. Then `output_splits[s]` rows go back to rank "
        "s, and `input_splits[d]` rows come back from rank d, in rank order. The weight of returned row i is the i-th "
        "entry, experts ascending and tokens ascending inside an expert, of the dense (E, tokens) table of "
        "`routing_weights` at the true places of `routing_map`; weights of an expert that a token selects twice add "
        "up. The result has the shape `org_hidden_states_shape`, in the run dtype: each returned row times its weight, "
        "added to the token `local_input_permutation_mapping[i]`. Sizes may be lists or integer tensors, the counts "
        "integers or floats, and any of them zero. Only the sizes given decide what is sent. `group` None means the "
        "world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"M": 1024, "N": 1024},
    cpu_sizes={"M": 256, "N": 128},
    check_sizes={"M": 64, "N": 18},
    hidden_sizes=hidden_sizes,
    hidden_property="the number of tokens and N are odd, so no row is a multiple of 16 bytes",
    linear=("expert_outputs",),
    draws={
        "even": "structured: sizes cut evenly, unrelated to the routing, as in the public suite",
        "idle": "structured: no token used an expert of the last rank",
        "popular": "structured: every token used expert 0",
        "tensors": "structured: sizes as tensors, counts as floats",
        "subgroups": "structured: two layers, one on the even ranks and one on the odd ranks",
        "small": "stress: rows scaled by 1e-3",
        "large": "stress: rows scaled by 1e3",
        "mixed": "stress: rows with amplitudes from 1e-2 to 1e2",
    },
    world_size_rule=world_size_rule,
    skip_draw=skip_draw,
    golden_inputs=golden_inputs,
    communication="all_to_all_single with sizes, (Q, N) -> (P, N), over the world group",
    hazards=(
        "The roles of the two size lists are swapped against the dispatch.",
        "Blocks are cut by the lists given, not by the routing: the two need not agree.",
        "Weights of a token do not add up to 1.",
        "Row counts depend on the data; blocks and chunks may be empty.",
        "The sum per token by atomics is the same in every order only for two rows per token.",
    ),
)
