"""Distributed neighbour sampling for graph networks: several hops, each a request and a reply by all-to-all.

Legend: V nodes, s seeds of one rank, k neighbours per node and hop, W ranks; the owner of node v is node_to_rank[v]. On
its owner the neighbours of v are local_adj_col[ptr[v]], ..., local_adj_col[ptr[v+1] - 1] with ptr = local_adj_row_ptr
(V + 1,); elsewhere it has none.

    node = src = seeds; for every hop with its k:
        the first min(k, degree) neighbours of every v in src (all if k < 0), v in order, give edges (neighbour, v,
        place of the neighbour in the owner's local_adj_col)
        src = neighbours that are not in node yet, in the order in which they first appear; node = node, then src
    row = position in node of the neighbours, col = position in node of the v, edge = the places, over all hops
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import List, Optional, Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Group, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost
from problems.suite.families.exchange import index_bytes, inputs_by_group
from problems.suite.groups import by_group, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """A random graph truly split over the ranks, of degrees 0 to 24, and distinct random seeds.

    Rank q owns a share proportional to 1 + q mod 3; neighbours of a node are distinct. The published inputs have a
    ring, whole on every rank, and consecutive seeds.
    """
    return inputs_by_group(case, rng, _group_inputs)


def _group_inputs(case: Case, rng: Rng, part: Sequence[int], group: Group | None) -> list[Args]:
    W, V = len(part), case["V"]
    shares = torch.tensor([1.0 + q % 3 for q in range(W)]).cumsum(0)
    owner = torch.bucketize(rng.uniform(None, (V,)) * shares[-1], shares, right=True).clamp(max=W - 1)
    degree = rng.integers(None, 0, min(24, V), (V,))
    fanouts = {"all_neighbours": [-1], "three_hops": [4, 3, 2]}.get(case.draw, [10, 5])
    ranks: list[Args] = []
    for q, r in enumerate(part):
        own = torch.where(owner == q, degree, 0)
        lists = [_distinct(rng, r, V, int(n)) for n in own[own > 0]]
        ranks.append(
            {
                "seed_nodes": _distinct(rng, r, V, min(case["s"], V)),
                "fanouts": list(fanouts),
                "local_adj_row_ptr": torch.cat([torch.zeros(1, dtype=torch.int64), own.cumsum(0)]),
                "local_adj_col": torch.cat([torch.empty(0, dtype=torch.int64), *lists]),
                "node_to_rank": owner.clone(),
                "group": group,
                "replace": False,
            }
        )
    return ranks


def _distinct(rng: Rng, rank: int, below: int, count: int) -> torch.Tensor:
    """So many different numbers in [0, below), in random order."""
    drawn: dict[int, None] = {}
    while len(drawn) < count:
        drawn |= dict.fromkeys(rng.integers(rank, 0, below - 1, (count,)).tolist())
    return torch.tensor(list(drawn)[:count], dtype=torch.int64)


def spread(starts: torch.Tensor, counts: torch.Tensor) -> torch.Tensor:
    """starts[0], starts[0] + 1, ..., counts[0] numbers, then the same from starts[1] on, and so on."""
    ends = counts.cumsum(0)
    offset = torch.repeat_interleave(starts - (ends - counts), counts)
    return offset + torch.arange(len(offset), device=offset.device)


def ask_owners(
    src: torch.Tensor,
    k: int,
    ptr: torch.Tensor,
    col: torch.Tensor,
    owner: torch.Tensor,
    group: Optional[dist.ProcessGroup],
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Neighbours of every node of ``src`` in its order, their edge ids, and how many each node has."""
    W = dist.get_world_size(group)
    order = torch.argsort(owner[src], stable=True)
    counts = torch.bincount(owner[src], minlength=W)
    counts_served = torch.empty_like(counts)
    dist.all_to_all_single(counts_served, counts, group=group)
    asked, served = torch.stack([counts, counts_served]).tolist()
    nodes = src.new_empty(sum(served))
    dist.all_to_all_single(nodes, src[order], served, asked, group=group)

    takes = ptr[nodes + 1] - ptr[nodes]
    if k >= 0:
        takes = takes.clamp(max=k)
    edges = spread(ptr[nodes], takes)
    takes_back = src.new_empty(len(src))
    dist.all_to_all_single(takes_back, takes, asked, served, group=group)
    sizes_out = [int(part.sum()) for part in torch.split(takes, served)]
    sizes_in = [int(part.sum()) for part in torch.split(takes_back, asked)]
    reply = torch.stack([col[edges], edges], dim=1)
    answers = reply.new_empty((sum(sizes_in), 2))
    dist.all_to_all_single(answers, reply, sizes_in, sizes_out, group=group)

    # From the order of the requests, by owner, back to that of src.
    starts, taken = torch.empty_like(src), torch.empty_like(src)
    starts[order], taken[order] = takes_back.cumsum(0) - takes_back, takes_back
    neighbours, edge_ids = answers[spread(starts, taken)].t()
    return neighbours, edge_ids, taken


def solution(
    seed_nodes: torch.Tensor,
    fanouts: List[int],
    local_adj_row_ptr: torch.Tensor,
    local_adj_col: torch.Tensor,
    node_to_rank: torch.Tensor,
    group: Optional[dist.ProcessGroup] = None,
    replace: bool = False,
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    node = src = seed_nodes
    position = torch.full_like(node_to_rank, -1)  # of every node of the graph in node
    position[node] = torch.arange(len(node), device=node.device)
    rows: List[torch.Tensor] = []
    cols: List[torch.Tensor] = []
    edges: List[torch.Tensor] = []
    for k in fanouts:
        # A rank that has nothing left to ask still takes part, for the others may have.
        found, edge_ids, taken = ask_owners(src, k, local_adj_row_ptr, local_adj_col, node_to_rank, group)
        place = torch.arange(len(found), device=found.device)
        first = torch.full_like(node_to_rank, len(found)).scatter_reduce_(0, found, place, "amin")
        cols.append(torch.repeat_interleave(position[src], taken))
        src = found[(first[found] == place) & (position[found] < 0)]
        position[src] = torch.arange(len(node), len(node) + len(src), device=node.device)
        node = torch.cat([node, src])
        rows.append(position[found])
        edges.append(edge_ids)
    empty = node.new_empty(0)
    return node.clone(), torch.cat([empty, *rows]), torch.cat([empty, *cols]), torch.cat([empty, *edges])


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, _sampled)


def _sampled(members: list[Args]) -> list[Expected]:
    expected = []
    for sample in _samples(members):
        place = {v: i for i, v in enumerate(sample.node)}
        columns = (
            sample.node,
            [place[u] for u, _, _ in sample.edges],
            [place[v] for _, v, _ in sample.edges],
            [edge for _, _, edge in sample.edges],
        )
        leaves = (Leaf(torch.tensor(column, dtype=torch.int64), torch.int64, Exact()) for column in columns)
        expected.append(Expected(tuple(leaves)))
    return expected


@dataclass(frozen=True)
class _Sample:
    """What one rank finds: nodes, edges (neighbour, node, edge id), and the nodes whose neighbours it asked for."""

    node: list[int]
    edges: list[tuple[int, int, int]]
    asked: list[int]


def _samples(members: list[Args]) -> list[_Sample]:
    """The sampling of every member of a group, one node after the other."""
    owner = members[0]["node_to_rank"].tolist()
    ptr = [a["local_adj_row_ptr"].tolist() for a in members]
    col = [a["local_adj_col"].tolist() for a in members]
    samples = []
    for a in members:
        node = dict.fromkeys(a["seed_nodes"].tolist())
        src, edges, asked = list(node), [], []
        for k in a["fanouts"]:
            fresh: dict[int, None] = {}
            for v in src:
                q = owner[v]
                start, end = ptr[q][v], ptr[q][v + 1]
                for edge in range(start, end if k < 0 else min(end, start + k)):
                    edges.append((col[q][edge], v, edge))
                    if col[q][edge] not in node:
                        fresh[col[q][edge]] = None
            asked += src
            node |= fresh
            src = list(fresh)
        samples.append(_Sample(list(node), edges, asked))
    return samples


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; of every node asked for its owner and two pointers, of every edge a neighbour; results written.

    Link, read from the owner's memory so that no requests travel: of every node of another rank its first edge id and
    its number of edges, of every edge the neighbour, all as packed indices.
    """
    return by_group(args, _cost)


def _cost(members: list[Args]) -> list[RankCost]:
    W, V = len(members), len(members[0]["node_to_rank"])
    owner = members[0]["node_to_rank"].tolist()
    sizes, hbm = [[0.0] * W for _ in range(W)], [0.0] * W
    for r, sample in enumerate(_samples(members)):
        hbm[r] += 8.0 * (len(sample.asked) + len(sample.node) + 3 * len(sample.edges))
        most = max(1, max(members[r]["fanouts"])) if min(members[r]["fanouts"]) >= 0 else V
        for v in sample.asked:
            q = owner[v]
            sizes[q][r] += index_bytes(len(members[q]["local_adj_col"])) + index_bytes(most + 1)
            hbm[q] += 16.0
        for _, v, _ in sample.edges:
            sizes[owner[v]][r] += index_bytes(V)
            hbm[owner[v]] += 8.0
    return all_to_all_cost(sizes, flops={}, hbm=hbm)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("V", "s"))


def blank(args: Args) -> Args:
    """A rank without edges."""
    pointers = torch.zeros_like(args["local_adj_row_ptr"])
    return {**args, "local_adj_row_ptr": pointers, "local_adj_col": args["local_adj_col"][:0]}


def golden_inputs(name: str, world_size: int) -> list[Args]:
    """Forty nodes with owner v mod 4 and degree 7 v mod 6; five seeds per rank."""
    v = torch.arange(40)
    ranks: list[Args] = []
    for q in range(world_size):
        degree = torch.where(v % 4 == q, (7 * v) % 6, 0)
        ranks.append(
            {
                "seed_nodes": (11 * q + 3 * torch.arange(5)) % 40,
                "fanouts": [3, 2],
                "local_adj_row_ptr": torch.cat([torch.zeros(1, dtype=torch.int64), degree.cumsum(0)]),
                "local_adj_col": (13 * torch.arange(int(degree.sum())) + 5 + 3 * q) % 40,
                "node_to_rank": v % 4,
                "group": None,
                "replace": False,
            }
        )
    return ranks


PROBLEM = Problem(
    id=64,
    slug="gnn_neighbor_sampling",
    title="Distributed neighbour sampling (several hops, requests and replies)",
    type="graph",
    also=(),
    domain="graph",
    stage="preprocessing",
    origin="PyTorch Geometric torch_geometric.distributed DistNeighborSampler (homogeneous, deduplicated)",
    difficulty=4,
    statement=(
        "A graph is split over the ranks: the neighbours of node v lie on rank `node_to_rank[v]`, there in "
        "`local_adj_col[ptr[v] : ptr[v+1]]` with ptr = `local_adj_row_ptr`, which covers all nodes of the graph. "
        "Sampling is deterministic: for every hop and its fanout k take the first min(k, degree) neighbours of each "
        "node of the frontier, all of them if k is negative. The frontier of the first hop is `seed_nodes` (distinct); "
        "that of the next is what the hop found and no earlier one had, in the order of first appearance. The result "
        "is a tuple of four int64 tensors: `node`, seeds first, then the frontiers; and for every edge, hop by hop and "
        "in the order of the frontier's nodes, `row` and `col`, the positions in `node` of the neighbour and of the "
        "node it is a neighbour of, and `edge`, its index in `local_adj_col` of the owner. `replace` has no effect. No "
        "rank runs out of new nodes before its last hop. `group` None means the world group; owners count by rank in "
        "the group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"V": 10_000, "s": 512},
    cpu_sizes={"V": 10_000, "s": 128},
    check_sizes={"V": 400, "s": 24},
    hidden_sizes=hidden_sizes,
    hidden_property="the numbers of nodes and seeds are odd",
    draws={
        "all_neighbours": "structured: one hop with all neighbours",
        "three_hops": "structured: three hops",
        "subgroups": "structured: two graphs, one on the even ranks and one on the odd ranks",
    },
    skip_draw=lacks_subgroups,
    replicated=("node_to_rank",),
    blank=blank,
    golden_inputs=golden_inputs,
    run_dtypes=(torch.float32,),
    communication=(
        "for every hop:\nall_to_all_single of W counts\nall_to_all_single with sizes, node ids\n"
        "all_to_all_single with sizes, numbers of neighbours\nall_to_all_single with sizes, neighbours and edge ids"
    ),
    hazards=(
        "All sizes depend on the data, hop by hop.",
        "Edge ids count in the owner's part of the graph.",
        "New nodes stand in the order of first appearance, not sorted.",
        "A rank that leaves the loop early while others still call collectives makes them hang.",
    ),
)
