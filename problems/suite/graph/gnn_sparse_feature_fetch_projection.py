"""Fetch rows of node embeddings from shards by range, then project them.

Legend: V nodes, D embedding width, P projected width, Q_r queries of rank r, W ranks, C = ceil(V / W) nodes per shard.

    row g of the table lies on rank g // C at local row g mod C          local_embedding_shard_q (min(C, V - q C), D)
    projected[j] = table[input_node_ids[j]] @ proj_matrix                proj_matrix (D, P), projected (Q_r, P)

Every rank has its own projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Group, Leaf, Problem, RankCost, Rng, calibrated, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.draws import scaled_normal
from problems.suite.families.exchange import distinct, inputs_by_group, travelling_rows
from problems.suite.groups import by_group, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal table, projection scaled by 1 / sqrt(D), half of the queries at one owner; Q_r = Q + 17 r."""
    return inputs_by_group(case, rng, _group_inputs)


def _group_inputs(case: Case, rng: Rng, part: Sequence[int], group: Group | None) -> list[Args]:
    # The published table, of 111 million nodes, takes 28 GB per rank at W = 2; ours is small enough to be drawn anew
    # for every call and still larger than a cache. Its size is no multiple of a world size.
    W, V, D, P = len(part), case["V"], case["D"], case["P"]
    C = -(-V // W)
    favourite = int(rng.integers(None, 0, W - 1, ()))
    ranks: list[Args] = []
    for place, r in enumerate(part):
        rows = min(C, V - place * C)
        queries = case["Q"] + 17 * r
        ids = rng.integers(r, 0, V - 1, (queries,))
        if case.draw not in ("uniform", "local"):
            first, last = favourite * C, min(V, (favourite + 1) * C) - 1
            ids = torch.where(rng.uniform(r, (queries,)) < 0.4, rng.integers(r, first, last, (queries,)), ids)
        if case.draw == "repeats":
            ids = ids[rng.integers(r, 0, 15, (queries,)) % queries]
        elif case.draw == "local" and place == 0:
            ids = ids % rows  # the first rank asks nobody else
        shard = scaled_normal(rng, r, (rows, D), case.draw)
        proj = rng.normal(r, (D, P), std=D**-0.5)
        ranks.append(
            {
                "local_embedding_shard": shard.to(case.dtype),
                "input_node_ids": ids,
                "proj_matrix": proj.to(case.dtype),
                "num_total_nodes": V,
                "group": group,
            }
        )
    return ranks


def solution(
    local_embedding_shard: torch.Tensor,
    input_node_ids: torch.Tensor,
    proj_matrix: torch.Tensor,
    num_total_nodes: int,
    group: Optional[dist.ProcessGroup] = None,
) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    shard_size = -(-num_total_nodes // W)
    owner = (input_node_ids // shard_size).clamp(max=W - 1)
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=W)
    counts_served = torch.empty_like(counts)
    dist.all_to_all_single(counts_served, counts, group=group)
    asked, served = torch.stack([counts, counts_served]).tolist()  # one device synchronisation
    ids_served = input_node_ids.new_empty(sum(served))
    dist.all_to_all_single(ids_served, input_node_ids[order], served, asked, group=group)
    rows_served = local_embedding_shard[ids_served - r * shard_size]
    rows = local_embedding_shard.new_empty((len(input_node_ids), local_embedding_shard.shape[1]))
    dist.all_to_all_single(rows, rows_served, asked, served, group=group)
    embeddings = torch.empty_like(rows)
    embeddings[order] = rows  # back into the order of the queries
    return embeddings @ proj_matrix


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, lambda group: _projected(case, group))


def _projected(case: Case, args: list[Args]) -> list[Expected]:
    table = torch.cat([a["local_embedding_shard"] for a in args])
    outs = [wide(table[a["input_node_ids"]]) @ wide(a["proj_matrix"]) for a in args]
    return [Expected(Leaf(out, case.dtype)) for out in outs]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 Q D P flops; distinct rows read by their owners, ids and the projection read, results written.

    Link: every distinct row that a rank needs from another one, once, read from the owner's memory: no ids travel.
    """
    return by_group(args, lambda group: _cost(case, group))


def _cost(case: Case, args: list[Args]) -> list[RankCost]:
    W, e, (D, P) = len(args), element_size(case.dtype), args[0]["proj_matrix"].shape
    C = -(-args[0]["num_total_nodes"] // W)
    ids = [[a["input_node_ids"][a["input_node_ids"] // C == q] for a in args] for q in range(W)]
    flops, hbm = [], []
    for q, a in enumerate(args):
        Q = len(a["input_node_ids"])
        flops.append({dtype_name(case.dtype): 2.0 * Q * D * P})
        hbm.append(float(distinct(torch.cat(ids[q])) * D * e + 8 * Q + (D * P + Q * P) * e))
    return travelling_rows(ids, D * e, flops=flops, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("V", "Q", "P"), multiple={"D": 8})


PROBLEM = Problem(
    id=68,
    slug="gnn_sparse_feature_fetch_projection",
    title="Fetch node embeddings from range shards, then project",
    type="graph",
    also=("embedding",),
    domain="graph",
    stage="forward",
    origin="sparse all-to-all pull and input projection in the manner of DGL and GraphStorm",
    difficulty=3,
    statement=(
        "A table of node embeddings is split into ranges: with C = ceil(`num_total_nodes` / W) nodes per shard, node g "
        "lies on rank g // C at local row g mod C of `local_embedding_shard`; the last shard may have fewer rows. "
        "Every rank fetches the rows of its `input_node_ids`, which come in any order, repeat and may be more on some "
        "ranks than on others, and multiplies them by its own `proj_matrix` (D, P). The result is (Q, P) in the order "
        "of the ids, in the run dtype. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"V": 262_139, "Q": 20_000, "D": 256, "P": 256},
    cpu_sizes={"V": 8191, "Q": 512, "D": 64, "P": 64},
    check_sizes={"V": 125, "Q": 40, "D": 16, "P": 12},
    hidden_sizes=hidden_sizes,
    hidden_property="P is odd, the number of nodes is no multiple of the world size",
    linear=("local_embedding_shard",),
    draws={
        "uniform": "structured: queries spread evenly over the owners",
        "repeats": "structured: a rank's queries name at most sixteen nodes",
        "local": "structured: rank 0 asks for rows of its own shard only",
        "subgroups": "structured: two tables, one on the even ranks and one on the odd ranks",
        "small": "stress: table scaled by 1e-3",
        "large": "stress: table scaled by 1e3",
        "mixed": "stress: rows of the table with amplitudes from 1e-2 to 1e2",
    },
    skip_draw=lacks_subgroups,
    tolerances=calibrated(bf16=6e-3),
    communication=(
        "all_to_all_single of W counts\nall_to_all_single with sizes, node ids, int64\nall_to_all_single with sizes, "
        "rows of the table"
    ),
    hazards=(
        "The projection differs from rank to rank: projecting at the owner before sending is wrong.",
        "Sizes of the exchange depend on the ids, and the load on the owners is uneven.",
        "The shard size follows from the number of nodes, not from the shard: the last one is shorter.",
    ),
)
