"""Distributed k-nearest-neighbour search: every rank's queries against a training set that is split over the ranks.

Legend: Q_r queries of rank r, n_s training rows of rank s, D feature width, k neighbours, W ranks.

    sims[i] = query_i . row for every training row of every rank, rounded to the run dtype
    topk_sims[i], topk_labels[i] = the k largest of them in descending order, and the labels of their rows      (Q_r, k)
    test_features_rank (Q_r, D), train_features_rank_T (D, n_s), train_labels_rank (1, n_s)

Among equal similarities any row may come first or be left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Optional, Tuple

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, Valid, calibrated, wide
from problems.suite.costs import dtype_name, element_size
from problems.suite.families.exchange import index_bytes
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Normal features whose similarities have a standard deviation of 1; every training row has a label of its own.

    Q_r = Q + r and n_s = n + 8 s. "classes": ten labels only; "one_rank": most neighbours lie on one rank.
    The published rows are normalised: similarities of about 0.05, a third of which are equal in bf16.
    """
    W, D = case.world_size, case["D"]
    group = even_and_odd(W) if case.draw == "subgroups" else None
    rows = [case["n"] + 8 * r for r in range(W)]
    labels = torch.argsort(rng.uniform(None, (sum(rows),)))
    if case.draw == "classes":
        labels = labels % 10
    favourite = int(rng.integers(None, 0, W - 1, ()))
    ranks: list[Args] = []
    for r in range(W):
        scale = 3.0 if case.draw == "one_rank" and r == favourite else 1.0
        train = rng.normal(r, (D, rows[r]), std=scale * D**-0.5)
        ranks.append(
            {
                "test_features_rank": rng.normal(r, (case["Q"] + r, D)).to(case.dtype),
                "train_features_rank_T": train.to(case.dtype),
                "train_labels_rank": labels[sum(rows[:r]) : sum(rows[: r + 1])].unsqueeze(0).clone(),
                "max_k": case["k"],
                "group": group,
            }
        )
    return ranks


def solution(
    test_features_rank: torch.Tensor,
    train_features_rank_T: torch.Tensor,
    train_labels_rank: torch.Tensor,
    max_k: int,
    group: Optional[dist.ProcessGroup] = None,
) -> Tuple[torch.Tensor, torch.Tensor]:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    n = train_features_rank_T.shape[1]
    if max_k > n:
        raise ValueError(f"max_k is {max_k}, but a rank has only {n} training rows")
    topk_sims = topk_labels = None
    for owner in range(W):
        # All ranks look for neighbours of the owner's queries among their own rows.
        shape = torch.tensor(test_features_rank.shape, device=test_features_rank.device)
        dist.broadcast(shape, group=group, group_src=owner)
        queries = test_features_rank.contiguous() if owner == r else test_features_rank.new_empty(shape.tolist())
        dist.broadcast(queries, group=group, group_src=owner)
        sims, nearest = (queries @ train_features_rank_T).topk(max_k, dim=1)
        labels = train_labels_rank[0][nearest]
        # The owner chooses from everybody's candidates.
        all_sims = [torch.empty_like(sims) for _ in range(W)] if owner == r else None
        all_labels = [torch.empty_like(labels) for _ in range(W)] if owner == r else None
        dist.gather(sims, all_sims, group=group, group_dst=owner)
        dist.gather(labels, all_labels, group=group, group_dst=owner)
        if all_sims is not None and all_labels is not None:
            topk_sims, chosen = torch.cat(all_sims, dim=1).topk(max_k, dim=1)
            topk_labels = torch.cat(all_labels, dim=1).gather(1, chosen)
    assert topk_sims is not None and topk_labels is not None
    return topk_sims, topk_labels


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    def nearest(members: list[Args]) -> list[Expected]:
        train = torch.cat([wide(a["train_features_rank_T"]) for a in members], dim=1)
        labels = torch.cat([a["train_labels_rank"][0] for a in members])
        expected = []
        for a in members:
            queries = wide(a["test_features_rank"])
            sims = queries @ train
            best, rows = sims.topk(a["max_k"], dim=1)
            # Rounding to the run dtype and sums in fp32 decide between rows that are as near as this.
            accumulated = 2e-6 * queries.norm(dim=1, keepdim=True) * train.norm(dim=0).max()
            near = torch.finfo(case.dtype).eps * best.abs() + accumulated
            rule = Valid(partial(_wrong_labels, sims, labels, best, near))
            expected.append(Expected((Leaf(best, case.dtype), Leaf(labels[rows], torch.int64, rule))))
        return expected

    return by_group(args, nearest)


def _wrong_labels(
    sims: torch.Tensor, labels: torch.Tensor, best: torch.Tensor, near: torch.Tensor, value: torch.Tensor
) -> str:
    """What is wrong with the labels ``value`` (Q, k), if anything.

    The label at a place must be that of a row whose similarity is within ``near`` of the oracle's at that place; and a
    label must occur at least as often as rows with it are surely, at most as often as they are possibly, among the k.
    """
    value = value.cpu()
    k, last = best.shape[1], best[:, -1:]
    margin = near[:, -1:]
    for i in range(len(best)):
        of_label = labels.unsqueeze(0) == value[i].unsqueeze(1)  # (k, rows)
        fits = ((sims[i] - best[i].unsqueeze(1)).abs() <= near[i].unsqueeze(1)) & of_label
        bad = (~fits.any(dim=1)).nonzero().flatten().tolist()
        if bad:
            where = f"query {i}, place {bad[0]}: label {int(value[i, bad[0]])}"
            return f"{where} belongs to no row with a similarity of {float(best[i, bad[0]]):.6g}; {len(bad)} of {k} so"
        surely = torch.unique(labels[sims[i] > last[i] + margin[i]])
        for label in torch.unique(torch.cat([value[i], surely])).tolist():
            rows = sims[i][labels == label]
            count = int((value[i] == label).sum())
            low, high = int((rows > last[i] + margin[i]).sum()), int((rows >= last[i] - margin[i]).sum())
            if not low <= count <= high:
                return f"query {i}: label {label} occurs {count} times among the {k} nearest, {low} to {high} are right"
    return ""


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """2 Q n D flops for the queries of all ranks; training rows, queries and labels read, results written.

    Link: queries to all ranks, and back from a rank the neighbours that are among the k nearest, with packed labels.
    """

    def costs(members: list[Args]) -> list[RankCost]:
        W, e = len(members), element_size(case.dtype)
        D, k = members[0]["train_features_rank_T"].shape[0], members[0]["max_k"]
        rows = [a["train_features_rank_T"].shape[1] for a in members]
        queries = [len(a["test_features_rank"]) for a in members]
        labels = torch.cat([a["train_labels_rank"][0] for a in members])
        answer = e + index_bytes(int(labels.max()) + 1)
        home = torch.repeat_interleave(torch.arange(W), torch.tensor(rows))
        train = torch.cat([wide(a["train_features_rank_T"]) for a in members], dim=1)
        won = torch.zeros(W, W)  # won[s, r]: neighbours of r's queries on rank s
        for r, a in enumerate(members):
            nearest = (wide(a["test_features_rank"]) @ train).topk(k, dim=1).indices
            won[:, r] = torch.bincount(home[nearest].flatten(), minlength=W).float()
        won.fill_diagonal_(0.0)
        ranks = []
        for r in range(W):
            asked, served = float(won[:, r].sum()) * answer, float(won[r].sum()) * answer
            own, total = queries[r] * D * e, sum(queries) * D * e
            sent, received = (W - 1) * own + served, total - own + asked
            floor = max((own if W > 1 else 0) + served, received)
            hbm = float(D * rows[r] * e + total + 8 * rows[r] + queries[r] * k * (e + 8))
            flops = {dtype_name(case.dtype): 2.0 * sum(queries) * rows[r] * D}
            ranks.append(RankCost(flops, hbm, float(sent), float(received), one_way=float(floor)))
        return ranks

    return by_group(args, costs)


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    sizes = jitter(public, secret, odd=("Q", "n", "k"), multiple={"D": 8})
    return {**sizes, "k": min(sizes["k"], sizes["n"])}


def world_size_rule(world_size: int, sizes: Mapping[str, int]) -> str:
    if sizes["k"] <= sizes["n"]:
        return ""
    return f"Every rank must have at least k training rows: {sizes['n']} is less than {sizes['k']}."


PROBLEM = Problem(
    id=79,
    slug="dinov2_distributed_knn",
    title="Distributed k-nearest-neighbour search",
    type="data",
    also=("collective",),
    domain="vision",
    stage="forward",
    origin="Meta DINOv2 kNN evaluation (KnnModule)",
    difficulty=3,
    statement=(
        "Every rank holds queries `test_features_rank` (Q, D) and a shard of a training set, `train_features_rank_T` "
        "(D, n) with the labels `train_labels_rank` (1, n), int64; Q and n may differ from rank to rank. For each of "
        "its own queries a rank returns the `max_k` largest dot products with the training rows of **all** ranks, in "
        "descending order and in the run dtype, and the labels of these rows, int64: the tuple of two (Q, max_k) "
        "tensors. Products accumulate in fp32 and are rounded to the run dtype; among rows that are equal then any may "
        "come first or be left out. `max_k` above n is a ValueError. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"Q": 32, "n": 4096, "D": 384, "k": 200},
    cpu_sizes={"Q": 16, "n": 512, "D": 64, "k": 50},
    check_sizes={"Q": 24, "n": 96, "D": 32, "k": 20},
    hidden_sizes=hidden_sizes,
    hidden_property="Q, n and k are odd, so no row of the result is a multiple of 16 bytes",
    draws={
        "classes": "structured: ten different labels",
        "one_rank": "structured: most neighbours lie on one rank",
        "subgroups": "structured: two training sets, one on the even ranks and one on the odd ranks",
    },
    world_size_rule=world_size_rule,
    skip_draw=lacks_subgroups,
    communication=(
        "for every rank as owner of queries:\nbroadcast of the shape\nbroadcast of the queries (Q, D)\n"
        "gather of similarities (Q, k) to the owner\ngather of labels (Q, k), int64, to the owner"
    ),
    hazards=(
        "In bf16 similarities collide: any order among equal ones is right, but not any label.",
        "Labels need not be different, and do not name a row.",
        "Q and n differ from rank to rank.",
        "Candidates that cannot be among the k nearest need not travel.",
    ),
    tolerances=calibrated(bf16=5.5e-3),
)
