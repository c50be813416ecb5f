"""GNN feature exchange, forward: gather rows of features, then an all-to-all by distance between ranks.

Legend: S seeds of one rank, H features, W ranks, s a source, d a destination, n[s][d] rows that s sends to d.

    g = local_features[seed_inverse_ids]                       local_features (S, H), g (sum over d of n[r][d], H)
    g = g_0, g_1, ..., g_{W-1}, where g_i has counts_received[i] = n[r][(r+i) mod W] rows and goes to rank (r+i) mod W
    out = o_0, ..., o_{W-1}, where o_i has counts_sent[i] = n[(r+i) mod W][r] rows and comes from rank (r+i) mod W

Both lists count by distance from the own rank, 0 being the own chunk, and are named after the earlier phase in which
the rows were requested.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import List, Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Group, Leaf, Problem, RankCost, Rng
from problems.suite.costs import element_size
from problems.suite.draws import bit_patterns
from problems.suite.families.exchange import inputs_by_group, relative, row_counts, travelling_rows
from problems.suite.groups import by_group, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal features; random rows with repeats; counts that differ by up to a factor of three."""
    return inputs_by_group(case, rng, _group_inputs)


def _group_inputs(case: Case, rng: Rng, part: Sequence[int], group: Group | None) -> list[Args]:
    W, R, H = len(part), case["R"], case["H"]
    S = max(1, R * 3 // 4)
    cnt = row_counts(case.draw, rng, R, W)
    ranks: list[Args] = []
    for place, r in enumerate(part):
        shape = (S, H)
        x = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        popular = S if case.draw != "repeats" else min(S, 8)
        ranks.append(
            {
                "local_features": x,
                "seed_inverse_ids": rng.integers(r, 0, popular - 1, (R,)),
                "counts_sent": relative([cnt[s][place] for s in range(W)], place),
                "counts_received": relative(cnt[place], place),
                "group": group,
            }
        )
    return ranks


def solution(
    local_features: torch.Tensor,
    seed_inverse_ids: torch.Tensor,
    counts_sent: List[int],
    counts_received: List[int],
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    distance = [(peer - r) % W for peer in range(W)]  # of the peers in rank order, which is how NCCL wants them
    chunks = torch.split(seed_inverse_ids, counts_received)
    rows = local_features[torch.cat([chunks[i] for i in distance])]
    send_sizes, receive_sizes = [counts_received[i] for i in distance], [counts_sent[i] for i in distance]
    received = rows.new_empty((sum(receive_sizes), *rows.shape[1:]))
    dist.all_to_all_single(received, rows, receive_sizes, send_sizes, group=group)
    blocks = torch.split(received, receive_sizes)
    return torch.cat([blocks[(r + i) % W] for i in range(W)])


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, lambda group: _exchanged(case, group))


def _exchanged(case: Case, args: list[Args]) -> list[Expected]:
    W = len(args)
    chunks = []
    for a in args:
        bounds = [sum(a["counts_received"][:i]) for i in range(W + 1)]
        gathered = a["local_features"].index_select(0, a["seed_inverse_ids"])
        chunks.append([gathered[bounds[i] : bounds[i + 1]] for i in range(W)])
    # Seen from rank r at distance i, the peer counts r at distance W - i.
    outs = [torch.cat([chunks[(r + i) % W][(W - i) % W] for i in range(W)]) for r in range(W)]
    return [Expected(Leaf(out, case.dtype, Exact())) for out in outs]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; rows read and written once, ids read; link: the distinct rows of every chunk.

    A row that occurs twice in a chunk needs to travel once, with a map of packed positions: of both forms the smaller.
    """
    return by_group(args, lambda group: _cost(case, group))


def _cost(case: Case, args: list[Args]) -> list[RankCost]:
    W, row = len(args), args[0]["local_features"].shape[1] * element_size(case.dtype)
    chunks = [torch.split(a["seed_inverse_ids"], a["counts_received"]) for a in args]
    ids = [[chunks[s][(d - s) % W] for d in range(W)] for s in range(W)]
    hbm = [float(sum(a["counts_sent"]) * row + sum(a["counts_received"]) * (row + 8)) for a in args]
    return travelling_rows(ids, row, flops=[{}] * W, hbm=hbm, mapped=True)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("R", "H"))


PROBLEM = Problem(
    id=65,
    slug="gnn_feature_exchange_all2all",
    title="GNN feature exchange, forward (gather rows, shifted all-to-all)",
    type="graph",
    also=(),
    domain="graph",
    stage="forward",
    origin="DGL GraphBolt cooperative minibatching: CooperativeConvFunction.forward",
    difficulty=2,
    statement=(
        "Gather rows: `g = local_features[seed_inverse_ids]`. Cut `g` into W consecutive chunks of "
        "`counts_received[i]` rows; chunk i goes to rank (r + i) mod W, where r is the own rank, so chunk 0 stays. "
        "The result is the concatenation of W chunks of `counts_sent[i]` rows, chunk i coming from rank (r + i) mod "
        "W, bit for bit. Both lists count by distance from the own rank, not by rank, and are named after the earlier "
        "request phase: what was requested from us is now sent by us. Sizes may be zero and differ from pair to pair; "
        "both ends agree. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"R": 1024, "H": 128},
    cpu_sizes={"R": 2048, "H": 64},
    check_sizes={"R": 40, "H": 6},
    hidden_sizes=hidden_sizes,
    hidden_property="H is odd, so no row is a multiple of 16 bytes; counts are uneven",
    linear=("local_features",),
    draws={
        "even": "structured: equal counts, as in the public suite",
        "sparse": "structured: empty chunks; rank 0 sends to nobody",
        "repeats": "structured: all rows are copies of at most eight features of a rank",
        "subgroups": "structured: two exchanges, among the even ranks and among the odd ranks",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    skip_draw=lacks_subgroups,
    communication="all_to_all_single with sizes, (R, H) in W chunks, over the world group",
    hazards=(
        "Chunks are ordered by distance from the own rank: an ordinary all-to-all gives a permuted result.",
        "The list called received has the sizes that are sent, and the other way round.",
        "Rows repeat inside a chunk.",
    ),
)
