"""Rank of each positive link score among its negatives, over all ranks.

Legend: P_r positives of rank r, n negatives per positive, W ranks, P = sum of P_r.

    s = sigmoid of a score in the run dtype
    ranking[i] = 1 + position of the positive in row i of [s(pos_i), s(neg_i,1), ..., s(neg_i,n)] in descending order
    rows of rank 0, then those of rank 1, ...; the same (P,) result on every rank     pos (P_r,), neg (P_r, n)

Among equal sigmoids the positive may stand anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Optional

import torch
import torch.distributed as dist

from problems.suite.base import Args, Case, Expected, Leaf, Problem, RankCost, Rng, Valid, wide
from problems.suite.costs import element_size
from problems.suite.families.exchange import index_bytes
from problems.suite.groups import by_group, even_and_odd, lacks_subgroups
from problems.suite.shapes import jitter


def inputs(case: Case, rng: Rng) -> list[Args]:
    """Standard normal scores; positives offset by up to 2 either way; P_r = P + r mod 3.

    "ties": a grid of steps 1/8; "extreme": the positive is better or worse than all its negatives; "saturated": scores
    30 times as large, where sigmoids reach 0 and 1.
    """
    group = even_and_odd(case.world_size) if case.draw == "subgroups" else None
    ranks: list[Args] = []
    for r in range(case.world_size):
        rows = case["P"] + r % 3
        pos, neg = rng.normal(r, (rows,)), rng.normal(r, (rows, case["n"]))
        if case.draw == "extreme":
            best = rng.integers(r, 0, 1, (rows,)).bool()
            pos = torch.where(best, neg.amax(dim=1) + 0.5, neg.amin(dim=1) - 0.5)
        else:
            pos = pos + 4.0 * rng.uniform(r, (rows,)) - 2.0
        if case.draw == "ties":
            pos, neg = (pos * 8).round() / 8, (neg * 8).round() / 8
        elif case.draw == "saturated":
            pos, neg = pos * 30, neg * 30
        ranks.append({"local_pos_scores": pos.to(case.dtype), "local_neg_scores": neg.to(case.dtype), "group": group})
    return ranks


def solution(
    local_pos_scores: torch.Tensor, local_neg_scores: torch.Tensor, group: Optional[dist.ProcessGroup] = None
) -> torch.Tensor:
    W, r = dist.get_world_size(group), dist.get_rank(group)
    rows, n = local_neg_scores.shape
    sizes = torch.zeros(W, dtype=torch.int64, device=local_pos_scores.device)
    sizes[r] = rows
    dist.all_reduce(sizes, op=dist.ReduceOp.SUM, group=group)
    receive_sizes, send_sizes = sizes.tolist(), [rows] * W
    # Every rank gets a full copy of every other one's scores.
    pos = local_pos_scores.new_empty(sum(receive_sizes))
    dist.all_to_all_single(pos, local_pos_scores.repeat(W), receive_sizes, send_sizes, group=group)
    neg = local_neg_scores.new_empty((sum(receive_sizes), n))
    dist.all_to_all_single(neg, local_neg_scores.repeat(W, 1), receive_sizes, send_sizes, group=group)
    scores = torch.sigmoid(torch.cat([pos.unsqueeze(1), neg], dim=1))
    order = torch.argsort(scores, dim=1, descending=True)
    return (order == 0).to(torch.int64).argmax(dim=1) + 1  # where the positive, element 0, has gone


def oracle(case: Case, args: list[Args]) -> list[Expected]:
    return by_group(args, lambda group: _ranked(case, group))


def _ranked(case: Case, args: list[Args]) -> list[Expected]:
    pos = torch.cat([a["local_pos_scores"] for a in args]).unsqueeze(1)
    neg = torch.cat([a["local_neg_scores"] for a in args])
    s_pos, s_neg = wide(pos).sigmoid(), wide(neg).sigmoid()
    # A negative whose sigmoid is within one step of the run dtype may round to the same number, and one whose sigmoid
    # is within the error of a float32 evaluation of it, where subnormal numbers may become zero, may swap sides.
    larger = torch.maximum(s_pos, s_neg)
    unsure = _step(larger, case.dtype) + 4 * _step(larger, torch.float32) + torch.finfo(torch.float32).tiny
    lowest = 1 + (s_neg - s_pos > unsure).sum(dim=1)
    highest = 1 + (s_neg - s_pos >= -unsure).sum(dim=1)
    ranking = 1 + (s_neg > s_pos).sum(dim=1)
    rule = Valid(partial(_outside, lowest, highest))
    return [Expected(Leaf(ranking, torch.int64, rule)) for _ in args]


def _step(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Distance of neighbouring numbers of the dtype at x > 0."""
    finfo = torch.finfo(dtype)
    return (x.log2().floor().exp2() * finfo.eps).clamp(min=finfo.tiny * finfo.eps)


def _outside(lowest: torch.Tensor, highest: torch.Tensor, ranking: torch.Tensor) -> str:
    low, high = lowest.to(ranking.device), highest.to(ranking.device)
    bad = ((ranking < low) | (ranking > high)).nonzero().flatten().tolist()
    if not bad:
        return ""
    i = bad[0]
    allowed = f"{int(low[i])} to {int(high[i])}" if low[i] < high[i] else f"{int(low[i])}"
    return f"{len(bad)} of {len(ranking)} rankings are wrong, the first at {i}: {int(ranking[i])} instead of {allowed}"


def cost(case: Case, args: list[Args]) -> list[RankCost]:
    """A comparison per negative; own scores read, all rankings written; rankings of one of n + 1 values, packed.

    A row's ranking depends on that row alone, so every rank ranks its own rows and an all-gather of rankings is left.
    """
    return by_group(args, lambda group: _cost(case, group))


def _cost(case: Case, args: list[Args]) -> list[RankCost]:
    W, e, n = len(args), element_size(case.dtype), args[0]["local_neg_scores"].shape[1]
    rows = [len(a["local_pos_scores"]) for a in args]
    ranking = index_bytes(n + 1)
    ranks = []
    for own in rows:
        received = (sum(rows) - own) * ranking
        floor = max(received, own * ranking if W > 1 else 0.0)
        hbm = float(own * (n + 1) * e + 8 * sum(rows))
        ranks.append(RankCost({"fp32": float(own * n)}, hbm, (W - 1) * own * ranking, received, one_way=floor))
    return ranks


def hidden_sizes(public: Mapping[str, int], secret: torch.Generator) -> dict[str, int]:
    return jitter(public, secret, odd=("P", "n"))


PROBLEM = Problem(
    id=69,
    slug="gnn_negative_scoring",
    title="Rank of each positive link score among its negatives",
    type="graph",
    also=("data",),
    domain="graph",
    stage="forward",
    origin="GraphStorm link-prediction evaluation (broadcast_data and calc_ranking)",
    difficulty=2,
    statement=(
        "Row i of `local_neg_scores` (P_r, n) holds the scores of the negatives of the positive "
        "`local_pos_scores[i]`. Take the logistic sigmoid of all scores in the run dtype. The ranking of a positive is "
        "1 plus the number of its negatives that stand before it in descending order of the sigmoids; among equal "
        "sigmoids the positive may stand anywhere. The result on every rank is the int64 tensor of the rankings of "
        "all positives, those of rank 0 first, then those of rank 1, and so on. P_r may differ from rank to rank, n "
        "does not. `group` None means the world group."
    ),
    solution=solution,
    inputs=inputs,
    oracle=oracle,
    cost=cost,
    gpu_sizes={"P": 256, "n": 1000},
    cpu_sizes={"P": 48, "n": 256},
    check_sizes={"P": 64, "n": 512},
    hidden_sizes=hidden_sizes,
    hidden_property="the number of negatives is odd, the number of positives differs from rank to rank",
    draws={
        "ties": "structured: scores on a coarse grid, many ties",
        "extreme": "structured: positives better or worse than all their negatives",
        "subgroups": "structured: two groups, the even ranks and the odd ranks",
        "saturated": "stress: scores 30 times as large, whose sigmoids reach 0 and 1",
    },
    skip_draw=lacks_subgroups,
    communication=(
        "all_reduce SUM of W sizes\nall_to_all_single with sizes, positives, a full copy for every rank\n"
        "all_to_all_single with sizes, negatives, a full copy for every rank"
    ),
    hazards=(
        "In bf16 many rounded sigmoids are equal: any place among the ties is right, none beyond them is.",
        "The number of rows differs from rank to rank.",
        "The reference ships every score to every rank; the rankings alone would do.",
    ),
)
