"""Row exchanges whose sizes depend on the data: counts, bytes and draws that the graph and embedding problems share."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch

from problems.suite.base import Args, Case, Group, RankCost, Rng
from problems.suite.costs import all_to_all_cost
from problems.suite.draws import uneven_split
from problems.suite.groups import even_and_odd, members

Build = Callable[[Case, Rng, Sequence[int], Group | None], list[Args]]
"""Draws the arguments of the given ranks, which work together as one group."""


def inputs_by_group(case: Case, rng: Rng, build: Build) -> list[Args]:
    """``build`` for all ranks at once or, in the draw "subgroups", for the even ranks and for the odd ranks."""
    group = even_and_odd(case.world_size) if case.draw == "subgroups" else None
    ranks: dict[int, Args] = {}
    for part in members(group, case.world_size):
        ranks |= zip(part, build(case, rng, part, group), strict=True)
    return [ranks[r] for r in range(case.world_size)]


def index_bytes(choices: int) -> float:
    """Bytes that one index among so many choices takes at least: its bits, packed."""
    return math.ceil(math.log2(choices)) / 8 if choices > 1 else 0.0


def distinct(ids: torch.Tensor) -> int:
    """How many different values there are: rows that a sender need not repeat."""
    return len(set(ids.tolist()))


def travelling_rows(
    ids: Sequence[Sequence[torch.Tensor]],
    row: float,
    *,
    flops: Sequence[Mapping[str, float]],
    hbm: Sequence[float],
    mapped: bool = False,
    reduced: bool = False,
) -> list[RankCost]:
    """Exchange of rows of so many bytes, ``ids[s][d]`` naming the rows that rank d needs from rank s.

    A row that is needed twice by one rank travels once, with a map of packed positions if ``mapped`` and if that is
    less. ``one_way``: with multicast a row leaves its rank once however many need it; ``reduced``: the other way round,
    rows of one id from several ranks are added, in the switch if it can.
    """
    W = range(len(ids))
    bytes_of = [[_packed(ids[s][d], row, mapped) for d in W] for s in W]
    plain = all_to_all_cost(bytes_of, flops={}, hbm=hbm)
    ranks = []
    for r, link in enumerate(plain):
        others = [ids[d][r] if reduced else ids[r][d] for d in W if d != r]
        once = distinct(torch.cat(others)) * row if others else 0.0
        sent, received = (link.sent, min(link.received, once)) if reduced else (min(link.sent, once), link.received)
        ranks.append(RankCost(flops[r], hbm[r], link.sent, link.received, one_way=max(sent, received)))
    return ranks


def _packed(ids: torch.Tensor, row: float, mapped: bool) -> float:
    different = distinct(ids)
    return min(different * row + len(ids) * index_bytes(different), len(ids) * row) if mapped else different * row


def row_counts(draw: str, rng: Rng, total: int, W: int) -> list[list[int]]:
    """cnt[s][d], rows from member s to member d of W, ``total`` from every source; the same for all members.

    Uneven by up to a factor of three; "even": equal; "sparse": every third pair has nothing to exchange, and member 0
    keeps all its rows.
    """
    if draw == "even":
        return [equal_split(total, W) for _ in range(W)]
    cnt = [uneven_split(rng, None, total, W) for _ in range(W)]
    if draw == "sparse":
        for s in range(W):
            for d in range(W):
                if d != s and (s + 2 * d) % 3 == 0:
                    cnt[s][s] += cnt[s][d]
                    cnt[s][d] = 0
        cnt[0] = [total] + [0] * (W - 1)
    return cnt


def equal_split(total: int, parts: int) -> list[int]:
    """``total`` in equal parts; the first ones take the remainder."""
    return [total // parts + (1 if part < total % parts else 0) for part in range(parts)]


def relative(row: Sequence[int], rank: int) -> list[int]:
    """Counts by distance: entry i is that of peer (rank + i) mod W, so that entry 0 is the own one."""
    return [row[(rank + i) % len(row)] for i in range(len(row))]
