"""Bytes between the ranks: what the collectives are made of, over gloo and host memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import AllgatherOptions, AllToAllOptions, BroadcastOptions, Store


def as_bytes(tensor: Tensor) -> Tensor:
    """The bytes of a contiguous tensor on the host, (bytes,) uint8: a view on the CPU, a copy from elsewhere."""
    return tensor.detach().reshape(-1).view(torch.uint8).cpu()


def from_bytes(data: Tensor, like: Tensor) -> Tensor:
    """The (bytes,) uint8 ``data`` as a flat tensor of the dtype of ``like``."""
    return data.view(like.dtype)


def put(target: Tensor, data: Tensor) -> None:
    """Writes host ``data``, flat and of the dtype of ``target``, into ``target``."""
    target.detach().copy_(data.view(target.shape))


def pieces_of(data: Tensor, sizes: Sequence[int]) -> list[Tensor]:
    """Views of ``data``, (bytes,), of the given sizes one after the other."""
    starts = [sum(sizes[:place]) for place in range(len(sizes))]
    return [data[start : start + size] for start, size in zip(starts, sizes, strict=True)]


class Transport:
    """Exchange of host bytes in one group. Sizes are bytes. Every method blocks until its bytes have arrived."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self.rank = rank
        self.size = size
        self.gloo: Any = dist.ProcessGroupGloo(store, rank, size, timeout)

    def exchange(self, pieces: Sequence[Tensor], sizes: Sequence[int]) -> list[Tensor]:
        """Sends ``pieces[p]`` to rank p and returns what each rank sent here, ``sizes[p]`` bytes from p."""
        sent = torch.cat([piece.reshape(-1) for piece in pieces])
        received = torch.empty(sum(sizes), dtype=torch.uint8)
        lengths = [piece.numel() for piece in pieces]
        self.gloo.alltoall_base(received, sent, list(sizes), lengths, AllToAllOptions()).wait()
        return pieces_of(received, sizes)

    def gather_all(self, mine: Tensor, sizes: Sequence[int]) -> list[Tensor]:
        """Every rank's bytes, ``sizes[p]`` from p."""
        if len(set(sizes)) == 1:
            parts = [torch.empty(size, dtype=torch.uint8) for size in sizes]
            self.gloo.allgather([parts], [mine], AllgatherOptions()).wait()
            return parts
        return [self.broadcast(mine if p == self.rank else None, size, p) for p, size in enumerate(sizes)]

    def broadcast(self, mine: Tensor | None, size: int, root: int) -> Tensor:
        """The ``size`` bytes of rank ``root``, which alone gives ``mine``."""
        data = torch.empty(size, dtype=torch.uint8) if mine is None else mine.clone()
        if size:
            options = BroadcastOptions()
            options.rootRank = root
            options.rootTensor = 0
            self.gloo.broadcast([data], options).wait()
        return data

    def send(self, data: Tensor, peer: int) -> None:
        self.gloo.send([data], peer, 0).wait()

    def receive(self, size: int, peer: int) -> Tensor:
        data = torch.empty(size, dtype=torch.uint8)
        self.gloo.recv([data], peer, 0).wait()
        return data

    def barrier(self) -> None:
        self.gloo.barrier().wait()
