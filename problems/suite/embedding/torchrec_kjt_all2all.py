"""KeyedJaggedTensor all-to-all: sparse features travel to the ranks that own their tables.

Legend: F features, B_s batch of rank s, W ranks, x a feature owned by the own rank, s a source, b a sample.

    lengths, values on rank s: bags for feature 0 sample 0, 1, ..., feature 1 sample 0, ...; rank d owns key_splits[d]
    consecutive features; the segment of feature f holds stride_s(f) bags: batch_size, or stride_per_key[f] if given
    result on rank r, for lengths, values and weights alike:
        for each owned feature x, for each source s in the staggered order: segment (s, x), bags in their order
    staggered order with g = stagger: a + (W/g) c for a = 0 .. W/g - 1 (outer), c = 0 .. g - 1 (inner)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Dict, List, Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Exact, Expected, Group, Leaf, Problem, RankCost, Rng
from problems.suite.costs import all_to_all_cost, element_size
from problems.suite.families.exchange import inputs_by_group
from problems.suite.groups import by_group, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Bags of 0 to 20 values of 62 bits, a fifth of them empty, all of feature 1 empty; 1 + d mod 3 features of rank d.

    The structured draws use the other arguments: weights, batches that differ by rank, strides by feature, stagger, a
    rank that owns nothing.
    """
    return inputs_by_group(case, rng, _group_inputs)


def _group_inputs(case: Case, rng: Rng, part: Sequence[int], group: Group | None) -> list[Args]:
    W, B = len(part), case["B"]
    key_splits = [1 + d % 3 for d in range(W)]
    if case.draw == "no_features":
        key_splits[-1] = 0
    F = sum(key_splits)
    ranks: list[Args] = []
    for r in part:
        batch = B + max(1, B // 32) * r if case.draw == "batches" else B
        strides = [batch] * F
        if case.draw in ("strides", "stagger"):
            strides = [max(1, B // 16) * (1 + (f + r) % 3) for f in range(F)]
        lengths = rng.integers(r, 0, 20, (sum(strides),))
        lengths[rng.uniform(r, lengths.shape) < 0.2] = 0
        if F > 1:
            lengths[strides[0] : strides[0] + strides[1]] = 0
        count = int(lengths.sum())
        weighted = case.draw in ("weights", "batches", "strides", "stagger")
        ranks.append(
            {
                "lengths": lengths,
                "values": rng.integers(r, 0, 2**62 - 1, (count,)),
                "key_splits": list(key_splits),
                "batch_size": batch,
                "pg": group,
                "weights": rng.normal(r, (count,)).to(case.dtype) if weighted else None,
                "stride_per_key": strides if case.draw in ("strides", "stagger") else None,
                "stagger": 2 if case.draw == "stagger" else 1,
            }
        )
    return ranks


def _block_sums(x: torch.Tensor, sizes: List[int]) -> List[int]:
    """Sums of consecutive blocks of the given sizes, on the host."""
    sums = x.new_zeros(len(x) + 1)
    torch.cumsum(x, dim=0, out=sums[1:])
    ends = torch.tensor([0, *sizes], device=x.device).cumsum(dim=0)
    return sums[ends].diff().tolist()


def _reorder(x: torch.Tensor, sizes: List[int], segments: List[int]) -> torch.Tensor:
    """The blocks of the given sizes in another order."""
    blocks = torch.split(x, sizes)
    return torch.cat([blocks[i] for i in segments]) if segments else x


def solution(
    lengths: torch.Tensor,
    values: torch.Tensor,
    key_splits: List[int],
    batch_size: int,
    pg: Optional[dist.ProcessGroup] = None,
    weights: Optional[torch.Tensor] = None,
    stride_per_key: Optional[List[int]] = None,
    stagger: int = 1,
) -> Dict[str, torch.Tensor]:
    W, r = dist.get_world_size(pg), dist.get_rank(pg)
    strides = stride_per_key if stride_per_key is not None else [batch_size] * sum(key_splits)
    # What goes to each rank: strides of its features, and the number of values; both are announced first.
    firsts = [sum(key_splits[:d]) for d in range(W + 1)]
    lengths_out = [sum(strides[firsts[d] : firsts[d + 1]]) for d in range(W)]
    values_out = _block_sums(lengths, lengths_out)
    announced = torch.tensor([lengths_out, values_out, [batch_size] * W], device=lengths.device).t().contiguous()
    arriving = torch.empty_like(announced)
    dist.all_to_all_single(arriving, announced, group=pg)
    lengths_in, values_in, batches = arriving.t().tolist()
    owned = key_splits[r]
    strides_in = torch.tensor([batches] * owned, dtype=torch.int64).view(owned, W).t().flatten()  # by source, feature
    if stride_per_key is not None:
        own_strides = torch.tensor(stride_per_key, device=lengths.device)
        received = own_strides.new_empty(W * owned)
        dist.all_to_all_single(received, own_strides, [owned] * W, key_splits, group=pg)
        strides_in = received.cpu()

    new_lengths = lengths.new_empty(sum(lengths_in))
    dist.all_to_all_single(new_lengths, lengths, lengths_in, lengths_out, group=pg)
    order = [a + W // stagger * c for a in range(W // stagger) for c in range(stagger)]
    segments = [s * owned + x for x in range(owned) for s in order]
    segment_lengths = strides_in.tolist()
    segment_values = _block_sums(new_lengths, segment_lengths)

    result = {"lengths": _reorder(new_lengths, segment_lengths, segments)}
    for name, tensor in (("values", values), ("weights", weights)):
        if tensor is not None:
            new = tensor.new_empty(sum(values_in))
            dist.all_to_all_single(new, tensor, values_in, values_out, group=pg)
            result[name] = _reorder(new, segment_values, segments)
    weighted = {"weights": result.pop("weights")} if weights is not None else {}
    if stride_per_key is None:
        result["stride"] = torch.tensor(sum(batches), device=lengths.device)
        result["stride_per_rank"] = torch.tensor(batches, device=lengths.device)
    else:
        by_feature = strides_in.view(W, owned).t()[:, order]
        result["stride_per_key_per_rank"] = by_feature.contiguous().to(lengths.device)
    return {**result, **weighted}


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, _exchanged, name="pg")


def _exchanged(args: list[Args]) -> list[Expected]:
    W, key_splits, g = len(args), args[0]["key_splits"], args[0]["stagger"]
    order = torch.arange(W).view(g, W // g).t().flatten().tolist()
    bags = [_segments(a) for a in args]
    expected = []
    for r in range(W):
        own = range(sum(key_splits[:r]), sum(key_splits[: r + 1]))
        parts = [bags[s][f] for f in own for s in order]
        leaves = {name: _joined(parts, name, args[r]) for name in ("lengths", "values")}
        if args[r]["stride_per_key"] is None:
            batches = torch.tensor([a["batch_size"] for a in args])
            leaves["stride"] = Leaf(batches.sum(), torch.int64, Exact())
            leaves["stride_per_rank"] = Leaf(batches, torch.int64, Exact())
        else:
            table = torch.tensor([[args[s]["stride_per_key"][f] for s in order] for f in own], dtype=torch.int64)
            leaves["stride_per_key_per_rank"] = Leaf(table.view(len(own), W), torch.int64, Exact())
        if args[r]["weights"] is not None:
            leaves["weights"] = _joined(parts, "weights", args[r])
        expected.append(Expected(leaves))
    return expected


def _segments(a: Args) -> list[dict[str, torch.Tensor]]:
    """Lengths, values and weights of every feature of one rank."""
    F = sum(a["key_splits"])
    found, bag, value = [], 0, 0
    for f in range(F):
        stride = a["stride_per_key"][f] if a["stride_per_key"] is not None else a["batch_size"]
        lengths = a["lengths"][bag : bag + stride]
        count = int(lengths.sum())
        found.append({"lengths": lengths, "values": a["values"][value : value + count]})
        if a["weights"] is not None:
            found[-1]["weights"] = a["weights"][value : value + count]
        bag, value = bag + stride, value + count
    return found


def _joined(parts: list[dict[str, torch.Tensor]], name: str, a: Args) -> Leaf:
    pieces = [part[name] for part in parts]
    tensor = torch.cat(pieces) if pieces else a[name].new_empty(0)
    return Leaf(tensor, tensor.dtype, Exact())


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """No arithmetic; everything read and written once.

    Link: of the segments that change rank, 8 bytes for a value (they use 62 bits), one for the length of a bag (none
    holds more than 255), a weight in its dtype.
    """
    return by_group(args, lambda group: _cost(case, group), name="pg")


def _cost(case: Case, args: list[Args]) -> list[RankCost]:
    W, key_splits = len(args), args[0]["key_splits"]
    e = element_size(case.dtype) if args[0]["weights"] is not None else 0
    wire, memory = [[0.0] * W for _ in range(W)], [0.0] * W
    for s, a in enumerate(args):
        found = _segments(a)
        for d in range(W):
            own = found[sum(key_splits[:d]) : sum(key_splits[: d + 1])]
            bags, values = sum(len(x["lengths"]) for x in own), sum(len(x["values"]) for x in own)
            wire[s][d] = float(bags + values * (8 + e))
            for rank in (s, d):
                memory[rank] += 8.0 * bags + values * (8 + e)
    return all_to_all_cost(wire, flops={}, hbm=memory)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("B",))


def blank(args: Args) -> Args:
    """A rank without samples."""
    empty: Args = {name: x[:0] for name, x in args.items() if isinstance(x, torch.Tensor)}
    strides = [0] * sum(args["key_splits"]) if args["stride_per_key"] is not None else None
    return {**args, **empty, "batch_size": 0, "stride_per_key": strides}


def skip_draw(case: Case) -> bool:
    return lacks_subgroups(case) or (case.draw == "stagger" and case.world_size % 2 == 1)


PROBLEM = Problem(
    id=70,
    slug="torchrec_kjt_all2all",
    title="KeyedJaggedTensor all-to-all (sparse features to table owners)",
    type="embedding",
    also=("collective",),
    domain="recommender",
    stage="communication",
    origin="TorchRec KJTAllToAll (torchrec.distributed.dist_data)",
    difficulty=3,
    statement=(
        "Every rank holds bags of int64 `values` for F features and its own batch: `lengths` has the size of the bag "
        "of feature 0 sample 0, feature 0 sample 1, ..., feature 1 sample 0, and so on; the bags stand in `values` in "
        "the same order, and so do `weights` if given. A feature has `batch_size` bags, which may differ by rank, or "
        "`stride_per_key[f]` bags if that list is given. Rank d owns `key_splits[d]` consecutive features and receives "
        "their segments from all ranks, ordered by feature first and then by source rank; with `stagger` g > 1 the "
        "sources come in the order a + (W/g)·c, a = 0 .. W/g - 1 outside, c = 0 .. g - 1 inside.\n\n"
        "The result is a dict with these keys in this order: `lengths`, `values`; without `stride_per_key`: `stride` "
        "(0-dimensional, the sum of the batch sizes of all ranks) and `stride_per_rank` (W,), in rank order; with it: "
        "`stride_per_key_per_rank` (owned features, W), in the staggered order; then `weights` if weights were given. "
        "All integers are int64, weights keep their dtype; everything is exact. A rank that owns no feature gets empty "
        "tensors. `pg` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"B": 512},
    cpu_sizes={"B": 256},
    check_sizes={"B": 32},
    hidden_sizes=hidden_sizes,
    hidden_property="the batch size is odd",
    draws={
        "weights": "structured: with weights",
        "batches": "structured: batch sizes differ by rank, with weights",
        "strides": "structured: strides differ by feature and rank, with weights",
        "stagger": "structured: as strides, with stagger 2",
        "subgroups": "structured: two exchanges, among the even ranks and among the odd ranks",
        "no_features": "structured: the last rank owns no feature",
    },
    skip_draw=skip_draw,
    blank=blank,
    communication=(
        "all_to_all_single of three numbers for every rank\nall_to_all_single with sizes, lengths, int64\n"
        "all_to_all_single with sizes, values, int64\nall_to_all_single with sizes, weights or strides, where given"
    ),
    hazards=(
        "The length of the output depends on the data: a plain implementation reads counts on the host.",
        "The load is uneven: ranks own one, two or three features.",
        "Bags may be empty, and so may all bags of a feature.",
        "Values use 62 bits: a narrower wire format is not possible.",
    ),
)
