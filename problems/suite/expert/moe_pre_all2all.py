"""Expert-parallel MoE dispatch: permute by expert, all-to-all, regroup by local expert.

Legend: M tokens of one rank, N hidden width, E = 8 experts, K = 2 picks per token, W ranks, L = E/W, x an expert, t a
token, s a source, l a local expert.

    routing_map[x, t] = sum over slots of expert_mask[x, :, t]                 expert_mask (E, K, M), routing_map (E, M)
    permutation = the t of all (x, t) with routing_map[x, t] != 0, x ascending, then t ascending              (P,)
    rows = hidden_states[permutation], consecutive blocks of input_splits[d] rows go to rank d               (P, N)
    received = block from rank 0, block from rank 1, ..., output_splits[s] rows each                          (Q, N)
    dispatched = received in W L chunks of sizes num_global_tokens_per_local_expert[s, l], s outer and l inner,
                 brought into the order l outer and s inner                                                   (Q, N)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import List, Optional, Tuple, Union

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import element_size
from problems.suite.draws import bit_patterns
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
    """Standard normal rows, skewed routing with two different experts per token, sizes that follow from it.

    "even": the published sizes, cut evenly whatever the routing; "duplicates": a third of the tokens name one expert
    twice; "idle": nobody wants the last rank's experts; "tensors": sizes as tensors, counts in float32, as
    ``moe_token_preprocess`` gives them.
    """
    W, M, N = case.world_size, case["M"], case["N"]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: dict[int, Args] = {}
    for part in group_members(group, W):
        n = len(part)
        picks = [skewed_picks(case.draw, rng, r, M, E, K, idle=range(E - E // n, E)) for r in part]
        if case.draw == "duplicates":
            for r, own in zip(part, picks, strict=True):
                own[rng.uniform(r, (M,)) < 1 / 3, 1] = -1
                own[:, 1] = torch.where(own[:, 1] < 0, own[:, 0], own[:, 1])
        counts = dispatch_sizes(picks, E)
        for place, (r, own) in enumerate(zip(part, picks, strict=True)):
            send, receive, table = splits(counts, place)
            if case.draw == "even":
                send, receive, table = even_splits(M, K, n, E // n)
            shape = (2, M // 2, N) if case.draw == "three_dims" else (M, N)
            bits = case.draw == "bits"
            tensors = case.draw == "tensors"
            ranks[r] = {
                "hidden_states": (bit_patterns(rng, r, shape, case.dtype) if bits else rng.normal(r, shape)).to(
                    case.dtype
                ),
                "expert_mask": pick_mask(own, E),
                "num_experts": E,
                "input_splits": torch.tensor(send) if tensors else send,
                "output_splits": torch.tensor(receive) if tensors else receive,
                "num_global_tokens_per_local_expert": table.to(torch.float32) if tensors else table,
                "group": group,
            }
    return [ranks[r] for r in range(W)]


def solution(
    hidden_states: torch.Tensor,
    expert_mask: torch.Tensor,
    num_experts: int,
    input_splits: Union[List[int], torch.Tensor],
    output_splits: Union[List[int], torch.Tensor],
    num_global_tokens_per_local_expert: torch.Tensor,
    group: Optional[dist.ProcessGroup] = None,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Size]:
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1])
    routing_map = expert_mask.sum(dim=1)
    _, permutation = routing_map.nonzero(as_tuple=True)  # experts ascending, tokens ascending inside an expert
    rows = hidden[permutation]
    send_sizes, receive_sizes = as_list(input_splits), as_list(output_splits)
    if sum(send_sizes) != len(rows):
        raise RuntimeError(f"input_splits add up to {sum(send_sizes)}, but {len(rows)} rows are routed")
    received = rows.new_empty((sum(receive_sizes), rows.shape[1]))
    dist.all_to_all_single(received, rows, receive_sizes, send_sizes, group=group)
    sizes = num_global_tokens_per_local_expert.to(torch.int64).tolist()  # [source][local expert]
    return transpose_chunks(received, sizes), routing_map, permutation, hidden.shape


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, lambda members: _dispatched(case, members))


def _dispatched(case: Case, args: list[Args]) -> list[Expected]:
    blocks = []
    for a in args:
        hidden = a["hidden_states"].flatten(0, -2)
        blocks.append(torch.split(hidden[_permutation(a)], as_list(a["input_splits"])))
    expected = []
    for r, a in enumerate(args):
        received = torch.cat([blocks[s][r] for s in range(len(args))])
        table = a["num_global_tokens_per_local_expert"].to(torch.int64)
        source_of_chunk = table.flatten().cumsum(0)
        starts = (source_of_chunk - table.flatten()).view(table.shape)
        order = [
            torch.arange(int(starts[s, x]), int(starts[s, x] + table[s, x]))
            for x in range(table.shape[1])
            for s in range(table.shape[0])
        ]
        tokens = a["hidden_states"].numel() // a["hidden_states"].shape[-1]
        expected.append(
            Expected(
                (
                    Leaf(received[torch.cat(order)], case.dtype, Exact()),
                    Leaf(a["expert_mask"].double().sum(dim=1), torch.float32, Exact()),
                    Leaf(_permutation(a), torch.int64, Exact()),
                    torch.Size([tokens, a["hidden_states"].shape[-1]]),
                )
            )
        )
    return expected


def _permutation(a: Args) -> torch.Tensor:
    """Token of every row that a rank sends."""
    wanted = (a["expert_mask"] != 0).any(dim=1)
    return torch.cat([row.nonzero().flatten() for row in wanted])


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """E K M additions for the routing map; tokens and mask read, rows, map and permutation written.

    Link: every token that a rank receives from another one once, with a map of packed positions, or all rows.
    """

    def costs(members: list[Args]) -> list[RankCost]:
        row = members[0]["hidden_states"].shape[-1] * element_size(case.dtype)
        ids = [torch.split(_permutation(a), as_list(a["input_splits"])) for a in members]
        flops, hbm = [], []
        for a in members:
            mask, rows = a["expert_mask"], sum(as_list(a["output_splits"]))
            tokens = mask.shape[2]
            flops.append({"fp32": float(mask.numel())})
            written = rows * row + 4 * E * tokens + 8 * sum(as_list(a["input_splits"]))
            hbm.append(float(tokens * row + 4 * mask.numel() + written))
        return travelling_rows(ids, row, flops=flops, hbm=hbm, mapped=True)

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("M", "N"))


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    return divides(world_size, E)


def blank(args: Args) -> Args:
    """The same routing, hidden states of zeros."""
    return {**args, "hidden_states": torch.zeros_like(args["hidden_states"])}


def skip_draw(case: Case) -> bool:
    return lacks_subgroups(case) or (case.draw == "even" and K * case["M"] % case.world_size != 0)


def golden_inputs(name: str, world_size: int) -> list[Args]:
    """Eight tokens of width 4 with the routing of the closed rule and its true sizes."""
    t = torch.arange(8)
    picks = [torch.stack([(3 * t + r) % E, (3 * t + r + 1 + t % 5) % E], dim=1) for r in range(world_size)]
    counts = dispatch_sizes(picks, E)
    ranks: list[Args] = []
    for r in range(world_size):
        send, receive, table = splits(counts, r)
        ranks.append(
            {
                "hidden_states": sin_rule([8, 4], rank=r, k=0),
                "expert_mask": pick_mask(picks[r], E),
                "num_experts": E,
                "input_splits": send,
                "output_splits": receive,
                "num_global_tokens_per_local_expert": table,
                "group": None,
            }
        )
    return ranks


PROBLEM = Problem(
    id=28,
    slug="moe_pre_all2all",
    title="MoE dispatch: permute by expert, all-to-all, regroup by local expert",
    type="expert",
    also=(),
    domain="llm_training",
    stage="forward",
    origin="Together AI xorl, after ByteDance VeOmni moe_layer.py: token_pre_all2all",
    difficulty=3,
    statement=(
        "Dispatch of a mixture-of-experts layer with E experts, L = E/W consecutive ones per rank. Flatten "
        "`hidden_states` to (tokens, N). `expert_mask` (E, K, tokens) is one-hot over the experts for every slot. "
        "`routing_map` (E, tokens), float32, is its sum over the slots. `permutation` lists, for the experts in "
        "ascending order, the tokens with a non-zero entry in ascending order (an expert that a token names twice "
        "counts once); the rows `hidden_states[permutation]` are sent in consecutive blocks of `input_splits[d]` rows "
        "to rank d, whatever the routing says. The rows received, `output_splits[s]` from rank s in rank order, are "
        "cut into chunks of `num_global_tokens_per_local_expert[s, l]` rows read row by row, and the chunks are put "
        "together with the local expert l outside and the source s inside. The result is the tuple (rows, "
        "`routing_map`, `permutation`, torch.Size of the flattened hidden states); rows are copied bit for bit. Sizes "
        "may be lists or integer tensors, the counts integers or floats, and any of them zero. If `input_splits` do "
        "not add up to the number of rows, a RuntimeError is raised. `group` None means the world group."
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
    draws={
        "even": "structured: sizes cut evenly, unrelated to the routing, as in the public suite",
        "idle": "structured: no token wants an expert of the last rank",
        "popular": "structured: every token wants expert 0",
        "duplicates": "structured: some tokens name one expert twice",
        "tensors": "structured: sizes as tensors, counts as floats",
        "three_dims": "structured: hidden states with a batch and a sequence axis",
        "subgroups": "structured: two layers, one on the even ranks and one on the odd ranks",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    world_size_rule=world_size_rule,
    skip_draw=skip_draw,
    blank=blank,
    local_outputs=("output.1", "output.2"),
    golden_inputs=golden_inputs,
    communication="all_to_all_single with sizes, (P, N) -> (Q, N), over the world group",
    hazards=(
        "Blocks are cut by the lists given, not by the routing: the two need not agree.",
        "The fourth result is a torch.Size, not a tensor.",
        "Row counts depend on the data; blocks and chunks may be empty.",
        "Reading the table of counts on the host synchronises with the device.",
    ),
)
