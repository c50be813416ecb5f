"""Which tokens go to which experts: draws and sizes that the MoE problems share.

Legend: M tokens of one rank, E experts, K picks per token, W ranks, L = E/W experts per rank; expert x lives on rank
x // L.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import List, Union

import torch

from problems.suite.base import Rng


def transpose_chunks(rows: torch.Tensor, sizes: List[List[int]]) -> torch.Tensor:
    """Rows in chunks of sizes[a][b], a outer and b inner, brought into the order b outer and a inner."""
    chunks = torch.split(rows, [size for inner in sizes for size in inner])
    width = len(sizes[0])
    return torch.cat([chunk for b in range(width) for chunk in chunks[b::width]])


def as_list(sizes: Union[List[int], torch.Tensor]) -> List[int]:
    """Sizes as integers on the host."""
    return [int(size) for size in (sizes.tolist() if isinstance(sizes, torch.Tensor) else sizes)]


def skewed_picks(draw: str, rng: Rng, rank: int, M: int, E: int, K: int, *, idle: Sequence[int]) -> torch.Tensor:
    """min(K, E) different experts for each of M tokens, best first: int64 (M, min(K, E)).

    Drawn with probability proportional to 1 / (1 + place of the expert in a random order of the rank's own). "popular":
    expert 0 is one of them; "idle": none of the experts in ``idle`` is.
    """
    place = torch.argsort(rng.uniform(rank, (E,)))
    chance = 1.0 / (1.0 + place.double())
    if draw == "idle":
        chance[list(idle)] = 0.0
    # The K largest of log(chance) + Gumbel noise are a draw without replacement.
    noise = -(-rng.uniform(rank, (M, E)).double().clamp(1e-12, 1.0 - 1e-7).log()).log()
    keys = chance.log() + noise
    if draw == "popular":
        keys[:, 0] = float("inf")
    return keys.topk(min(K, E), dim=1).indices


def pick_mask(picks: torch.Tensor, E: int) -> torch.Tensor:
    """One-hot over the experts for every slot and token: float32 (E, K, M)."""
    return (torch.arange(E).view(E, 1, 1) == picks.t()).to(torch.float32)


def dispatch_sizes(picks: Sequence[torch.Tensor], E: int) -> torch.Tensor:
    """Rows from rank s to expert x, a pick that a token names twice counting once: int64 (W, E)."""
    return torch.stack([(pick_mask(p, E).sum(dim=1) > 0).sum(dim=1) for p in picks])


def splits(counts: torch.Tensor, rank: int) -> tuple[list[int], list[int], torch.Tensor]:
    """Of ``dispatch_sizes`` for one rank: rows to each rank, rows from each rank, rows for each own expert (W, L)."""
    W, E = counts.shape
    own = counts[:, rank * E // W : (rank + 1) * E // W].contiguous()
    return counts[rank].view(W, E // W).sum(dim=1).tolist(), own.sum(dim=1).tolist(), own


def even_splits(M: int, K: int, W: int, L: int) -> tuple[list[int], list[int], torch.Tensor]:
    """As ``splits`` for K M rows cut evenly, whatever the picks; W must divide K M."""
    rows = K * M
    slots = torch.full((W * L,), rows // (W * L))
    slots[: rows % (W * L)] += 1
    return [rows // W] * W, [rows // W] * W, slots.view(W, L)
