"""Push sparse rows of an embedding gradient to their owners, by remainder.

Legend: n_s rows of rank s, H features, W ranks, s a source, r the own rank.

    owner of row j on rank s = idx_s[j] mod W
    recv_idx, recv_value on rank r = for s = 0, 1, ..., W-1: the pairs (idx_s[j], value_s[j]) with owner r, in the order
    of j                                                     idx_s (n_s,), value_s (n_s, H)

Rows travel as they are: nothing is added up, nothing is renumbered.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Optional, Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Group, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.draws import bit_patterns
from problems.suite.families.exchange import index_bytes, inputs_by_group
from problems.suite.groups import by_group, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal rows; 40 % of the indices belong to one owner, one in ten is a repeat; n_s = n + 17 s."""
    return inputs_by_group(case, rng, _group_inputs)


def _group_inputs(case: Case, rng: Rng, part: Sequence[int], group: Group | None) -> list[Args]:
    W, n, H = len(part), case["n"], case["H"]
    nodes = case["nodes"] if case.draw != "wide_ids" else 2**40
    nodes += -nodes % W
    favourite = int(rng.integers(None, 0, W - 1, ()))
    ranks: list[Args] = []
    for r in part:
        rows = n + 17 * r
        idx = rng.integers(r, 0, nodes - 1, (rows,))
        if case.draw != "uniform":
            forced = rng.uniform(r, (rows,)) < 0.4
            idx = torch.where(forced, idx - idx % W + favourite, idx)
        again = rng.uniform(r, (rows,)) < 0.1
        idx = torch.where(again, idx[0], idx)
        if case.draw == "one_empty":
            # Nothing belongs to the last rank: its indices go to the one before.
            idx = torch.where(idx % W == W - 1, idx - 1, idx) if W > 1 else idx
        shape = (rows, H)
        value = bit_patterns(rng, r, shape, case.dtype) if case.draw == "bits" else rng.normal(r, shape).to(case.dtype)
        ranks.append({"idx": idx, "value": value, "num_nodes": nodes, "group": group})
    return ranks


def solution(
    idx: torch.Tensor, value: torch.Tensor, num_nodes: int, group: Optional[dist.ProcessGroup] = None
) -> Tuple[torch.Tensor, torch.Tensor]:
    W = dist.get_world_size(group)
    if W == 1:
        return idx, value
    owner = idx % W
    order = torch.argsort(owner, stable=True)
    counts = torch.bincount(owner, minlength=W)
    counts_received = torch.empty_like(counts)
    dist.all_to_all_single(counts_received, counts, group=group)
    send_sizes, receive_sizes = torch.stack([counts, counts_received]).tolist()  # one device synchronisation
    recv_idx = idx.new_empty(sum(receive_sizes))
    recv_value = value.new_empty((sum(receive_sizes), *value.shape[1:]))
    dist.all_to_all_single(recv_idx, idx[order], receive_sizes, send_sizes, group=group)
    dist.all_to_all_single(recv_value, value[order], receive_sizes, send_sizes, group=group)
    return recv_idx, recv_value


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, lambda group: _pushed(case, group))


def _pushed(case: Case, args: list[Args]) -> list[Expected]:
    W = len(args)
    all_idx = torch.cat([a["idx"] for a in args])
    all_value = torch.cat([a["value"] for a in args])
    expected = []
    for r in range(W):
        mine = all_idx.remainder(W) == r
        leaves = (Leaf(all_idx[mine], torch.int64, Exact()), Leaf(all_value[mine], case.dtype, Exact()))
        expected.append(Expected(leaves))
    return expected


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; every pair read and written once; pairs that change rank, with a packed index.

    The remainder by W is known to the receiver, so an index is one of num_nodes / W.
    """
    return by_group(args, lambda group: _cost(case, group))


def _cost(case: Case, args: list[Args]) -> list[RankCost]:
    W, row = len(args), args[0]["value"].shape[1] * element_size(case.dtype)
    cnt = [torch.bincount(a["idx"] % W, minlength=W).tolist() for a in args]
    pair = row + index_bytes(-(-args[0]["num_nodes"] // W))
    hbm = [float((sum(cnt[r]) + sum(cnt[s][r] for s in range(W))) * (8 + row)) for r in range(W)]
    return all_to_all_cost([[rows * pair for rows in source] for source in cnt], flops={}, hbm=hbm)


def blank(args: Args) -> Args:
    """As many rows for every owner (24 is a multiple of the world sizes 2, 3, 4, 6, 8), but without content."""
    return {**args, "idx": args["idx"] % 24, "value": torch.zeros_like(args["value"])}


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("n", "H"))


PROBLEM = Problem(
    id=67,
    slug="gnn_sparse_embedding_all2all",
    title="Push sparse rows of an embedding gradient to their owners",
    type="graph",
    also=("embedding", "collective"),
    domain="graph",
    stage="communication",
    origin="DGL sparse all-to-all push with a remainder partition (dgl.cuda.nccl.sparse_all_to_all_push)",
    difficulty=2,
    statement=(
        "Row j of `value` belongs to the node `idx[j]`, whose owner is rank `idx[j] mod W`. Every rank sends its rows "
        "to their owners. The result on rank r is the pair (`recv_idx`, `recv_value`): all indices owned by r, as "
        "global node ids, and their rows, ordered by source rank and within one source in the original order, bit for "
        "bit. Nothing is added up: an index that occurs twice gives two rows. The number of rows may differ from rank "
        "to rank; only the leading axis of `value` is routed. `num_nodes` bounds the indices and has no effect. In a "
        "group of one rank the inputs themselves are the result. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"n": 1024, "H": 128, "nodes": 100_000},
    cpu_sizes={"n": 1024, "H": 64, "nodes": 100_000},
    check_sizes={"n": 40, "H": 6, "nodes": 1000},
    hidden_sizes=hidden_sizes,
    hidden_property="H and the number of rows are odd, so no row is a multiple of 16 bytes",
    draws={
        "uniform": "structured: indices spread evenly over the owners",
        "one_empty": "structured: the last rank receives nothing",
        "wide_ids": "structured: node ids need 40 bits",
        "subgroups": "structured: two exchanges, among the even ranks and among the odd ranks",
        "bits": "stress: random bit patterns: NaN payloads, infinities, subnormals and negative zeros",
    },
    skip_draw=lacks_subgroups,
    blank=blank,
    may_alias=("idx", "value"),
    communication=(
        "all_to_all_single of W counts\nall_to_all_single with sizes, indices, int64\n"
        "all_to_all_single with sizes, rows"
    ),
    hazards=(
        "Output lengths depend on the data: a plain implementation reads the counts on the host.",
        "The order inside a bucket is part of the definition: the sort must be stable.",
        "Duplicate indices stay separate rows, and indices stay global.",
    ),
)
