"""Row exchanges whose sizes depend on the data: counts, bytes and draws that the graph and embedding problems share."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from problems.suite.base import Case, Rng
from problems.suite.draws import uneven_split


def index_bytes(choices: int) -> float:
    """Bytes that one index among so many choices takes at least: its bits, packed."""
    return math.ceil(math.log2(choices)) / 8 if choices > 1 else 0.0


def distinct(ids: torch.Tensor) -> int:
    """How many different values there are: rows that a sender need not repeat."""
    return len(set(ids.tolist()))


def row_counts(case: Case, rng: Rng, total: int) -> list[list[int]]:
    """cnt[s][d], rows from rank s to rank d, ``total`` from every source; the same for all ranks.

    Uneven by up to a factor of three; "even": equal; "sparse": every third pair of ranks has nothing to exchange, and
    rank 0 keeps all its rows.
    """
    W = case.world_size
    if case.draw == "even":
        return [equal_split(total, W) for _ in range(W)]
    cnt = [uneven_split(rng, None, total, W) for _ in range(W)]
    if case.draw == "sparse":
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
