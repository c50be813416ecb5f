"""Distributed sample sort: one sorted sequence, spread evenly over the ranks.

Legend: n_r values of rank r, T = sum of n_r, W ranks.

    s = all values of all ranks in ascending order                                                            (T,)
    sorted_shard on rank r = its consecutive part of s: T // W values, one more on the first T mod W ranks

By regular sampling: every rank sorts its values and offers some of them as splitters; the splitters cut all shards into
buckets, one per rank, of about equal size; buckets are exchanged and merged, and a second exchange evens them out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import List, Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.families.exchange import index_bytes
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """n + 37 r standard normal values; the draws change their distribution or take them away from some ranks."""
    W, n = case.world_size, case["n"]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    ranks: list[Args] = []
    for r in range(W):
        count = n + 37 * r
        if case.draw == "all_empty" or (case.draw == "odd_empty" and r % 2 == 1):
            count = 0
        x = rng.normal(r, (count,))
        if case.draw == "heavy_tail":
            x = x**3
        elif case.draw == "ties":
            x = rng.integers(r, 0, 7, (count,)).float()
        elif case.draw == "in_order":
            x = (10.0 * r + rng.uniform(r, (count,))).sort().values
        elif case.draw == "reversed":
            x = rng.integers(r, -50, 49, (count,)).float() - float(r * n)
        elif case.draw == "equal":
            x = torch.ones(count)
        ranks.append({"local_shard": x.to(case.dtype), "group": group})
    return ranks


def gather_padded(x: torch.Tensor, length: int, fill: float, group: Optional[dist.ProcessGroup]) -> torch.Tensor:
    """Rows of all ranks, each filled up to ``length``: (W, length)."""
    padded = x.new_full((length,), fill)
    padded[: len(x)] = x
    rows = x.new_empty(dist.get_world_size(group) * length)
    dist.all_gather_into_tensor(rows, padded, group=group)
    return rows.view(-1, length)


def exchange(x: torch.Tensor, send_sizes: List[int], group: Optional[dist.ProcessGroup]) -> torch.Tensor:
    """All-to-all of consecutive blocks; the receivers learn the sizes first."""
    counts = torch.tensor(send_sizes, device=x.device)
    arriving = torch.empty_like(counts)
    dist.all_to_all_single(arriving, counts, group=group)
    receive_sizes = arriving.tolist()
    received = x.new_empty(sum(receive_sizes))
    dist.all_to_all_single(received, x, receive_sizes, send_sizes, group=group)
    return received


def cut_at_splitters(local: torch.Tensor, rank: int, samples: torch.Tensor, takes: torch.Tensor) -> torch.Tensor:
    """How many values of the sorted ``local`` lie at or below each splitter: (active ranks - 1,), ascending.

    ``samples`` (W, S) holds every rank's samples in ascending order, ``takes`` (W, S) at which place of its shard each
    was taken, -1 where there is none. Equal values count as ordered by rank and place, so that ties are cut too.
    """
    valid = takes >= 0
    active = int(valid.any(dim=1).sum())
    owner = torch.arange(len(samples), device=local.device).unsqueeze(1).expand_as(takes)[valid]
    place, value = takes[valid], samples[valid]
    order = torch.argsort(value, stable=True)  # rows are in the order of rank and place
    at = [(j + 1) * len(order) // active - 1 for j in range(active - 1)]
    chosen = order[torch.tensor(at, dtype=torch.int64, device=local.device)]
    value, owner, place = value[chosen], owner[chosen], place[chosen]
    below, through = torch.searchsorted(local, value), torch.searchsorted(local, value, right=True)
    return torch.where(owner == rank, place + 1, torch.where(owner > rank, through, below))


def solution(local_shard: torch.Tensor, group: Optional[dist.ProcessGroup] = None) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    device = local_shard.device
    own = torch.tensor([len(local_shard)], device=device)
    counts = gather_padded(own, 1, 0, group).flatten().tolist()
    total = sum(counts)
    if total == 0:
        return local_shard.new_empty(0)
    active = [q for q in range(W) if counts[q] > 0]
    A = len(active)

    local = local_shard.sort().values
    n = len(local)
    takes = torch.arange(n, device=device) if n <= A else (torch.arange(A, device=device) + 1) * n // A - 1
    samples = gather_padded(local[takes], A, math.inf, group)
    places = gather_padded(takes, A, -1, group)
    cuts = cut_at_splitters(local, r, samples, places).tolist()
    bucket_sizes = [0] * W
    for q, start, end in zip(active, [0, *cuts], [*cuts, n], strict=True):
        bucket_sizes[q] = end - start
    bucket = exchange(local, bucket_sizes, group).sort().values

    # Bucket q begins at the global place starts[q]; rank q keeps the places from bounds[q] on.
    held = gather_padded(torch.tensor([len(bucket)], device=device), 1, 0, group).flatten().tolist()
    start = sum(held[:r])
    bounds = [q * (total // W) + min(q, total % W) for q in range(W + 1)]
    inside = [min(max(bound - start, 0), len(bucket)) for bound in bounds]
    return exchange(bucket, [inside[q + 1] - inside[q] for q in range(W)], group)


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def cut(members: list[Args]) -> list[Expected]:
        s = torch.cat([a["local_shard"] for a in members]).double().sort().values
        rule = Exact(signed_zeros=False)
        return [Expected(Leaf(part.clone(), case.dtype, rule)) for part in torch.split(s, _shares(members))]

    return by_group(args, cut)


def _shares(members: list[Args]) -> list[int]:
    total, W = sum(len(a["local_shard"]) for a in members), len(members)
    return [total // W + (1 if r < total % W else 0) for r in range(W)]


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """log2 T comparisons per value; values read once and written once.

    Link: for every value, as many as a rank holds in the end more than it had, from ranks that had more than they hold;
    between two ranks as values, or as different values with packed counts, whichever is less.
    """

    def costs(members: list[Args]) -> list[RankCost]:
        e, shares = element_size(case.dtype), _shares(members)
        everything = torch.cat([a["local_shard"] for a in members]).double()
        values = torch.unique(everything)

        def histogram(part: torch.Tensor) -> torch.Tensor:
            return torch.bincount(torch.searchsorted(values, part.double()), minlength=len(values))

        before = torch.stack([histogram(a["local_shard"]) for a in members])
        after = torch.stack([histogram(part) for part in torch.split(everything.sort().values, shares)])
        sizes = _moved(before - after, e)
        hbm = [float((len(a["local_shard"]) + share) * e) for a, share in zip(members, shares, strict=True)]
        links = all_to_all_cost(sizes, flops={}, hbm=hbm)
        depth = math.log2(max(2, len(everything)))
        return [
            RankCost({"fp32": len(a["local_shard"]) * depth}, link.hbm, link.sent, link.received)
            for a, link in zip(members, links, strict=True)
        ]

    return by_group(args, costs)


def _moved(change: torch.Tensor, e: int) -> list[list[float]]:
    """Bytes from rank to rank for ``change`` (W, values): how many of a value a rank has too many, negative: too few.

    The surplus of a value fills the gaps in rank order.
    """
    surplus, gap = change.clamp(min=0), (-change).clamp(min=0)
    given, taken = surplus.cumsum(0), gap.cumsum(0)
    sizes = []
    for s in range(len(change)):
        row = []
        for d in range(len(change)):
            first = torch.maximum(given[s] - surplus[s], taken[d] - gap[d])
            moved = (torch.minimum(given[s], taken[d]) - first).clamp(min=0)
            most = int(moved.max()) if len(moved) else 0
            row.append(min(float(moved.sum()) * e, int((moved > 0).sum()) * (e + index_bytes(most + 1))))
        sizes.append(row)
    return sizes


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("n",))


PROBLEM = Problem(
    id=85,
    slug="distributed_sample_sort",
    title="Distributed sample sort with exact rebalancing",
    type="collective",
    also=("data",),
    domain="scientific",
    stage="preprocessing",
    origin="parallel sorting by regular sampling, as in the Heat library",
    difficulty=4,
    statement=(
        "Every rank holds a one-dimensional shard of floats without NaN; lengths may differ and may be zero, on some "
        "ranks or on all. Take all values of all ranks in ascending order; the result on rank r is its consecutive "
        "part of that sequence: T // W values, and one more on the first T mod W ranks, where T is the total number of "
        "values. The dtype is that of the input, an empty result included. Only values count, so any exact method "
        "gives the same result, but for the sign of zeros. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"n": 4096},
    cpu_sizes={"n": 1024},
    check_sizes={"n": 96},
    hidden_sizes=hidden_sizes,
    hidden_property="lengths differ from rank to rank and are not multiples of anything",
    linear=("local_shard",),
    draws={
        "heavy_tail": "stress: cubes of normal values",
        "ties": "structured: eight different values",
        "equal": "structured: all values are equal",
        "in_order": "structured: the shards are sorted and follow each other",
        "reversed": "structured: higher ranks hold smaller integers, as in the public suite",
        "odd_empty": "structured: ranks with odd numbers hold nothing",
        "all_empty": "structured: no rank holds anything",
        "subgroups": "structured: two sequences, one on the even ranks and one on the odd ranks",
    },
    skip_draw=lacks_subgroups,
    communication=(
        "all_gather of sizes\nall_gather of sample values and of their places\nall_to_all_single with sizes, buckets\n"
        "all_gather of bucket sizes\nall_to_all_single with sizes, rebalancing"
    ),
    hazards=(
        "Lengths of the results depend on the lengths of all shards.",
        "Shards may be empty, and so may all of them.",
        "With many equal values a splitter by value alone cannot cut the shards evenly.",
        "The reference moves some values twice and reads sizes on the host several times.",
    ),
)
