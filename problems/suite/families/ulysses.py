"""Ulysses exchange: each rank gives away slices along one dimension and receives the slices of all ranks along another.

Legend: W ranks, n local size of the dimension that is scattered, m local size of the dimension that is gathered.

    (..., n, ..., m, ...) -> (..., n/W, ..., W m, ...); slice d goes to rank d, slices arrive in the order of ranks
"""

from __future__ import annotations

from typing import Optional

import torch
import torch.distributed as dist


def scatter_and_gather(
    x: torch.Tensor, scatter_dim: int, gather_dim: int, group: Optional[dist.ProcessGroup]
) -> torch.Tensor:
    """Scatters ``scatter_dim`` over the ranks of the group and gathers ``gather_dim`` from them."""
    pieces = [piece.contiguous() for piece in x.chunk(dist.get_world_size(group), dim=scatter_dim)]
    received = [torch.empty_like(piece) for piece in pieces]
    dist.all_to_all(received, pieces, group=group)
    return torch.cat(received, dim=gather_dim)
