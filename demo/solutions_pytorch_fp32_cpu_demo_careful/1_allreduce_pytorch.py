"""All-reduce through memory that the ranks share: each rank reduces its slice of all inputs, then everybody copies.

The ranks of one host need no sockets. Every rank owns two files in /dev/shm, one for its input and one for its slice
of the sum, and a counter in a third one that tells the others how far it is. A rank that waits gives its core away.
"""

import mmap
import os
from pathlib import Path

import torch
import torch.distributed as dist

_FOLDER = Path("/dev/shm")  # noqa: S108  memory, not a folder for temporary files
_state: dict = {}


def _segment(name: str, size: int) -> torch.Tensor:
    """Bytes of a shared file, made if it is not there yet."""
    with (_FOLDER / name).open("a+b") as file:
        if os.fstat(file.fileno()).st_size < size:
            os.ftruncate(file.fileno(), size)
        return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=torch.uint8)


def _meet() -> None:
    """Returns when every rank has called it as often as this one."""
    counters, rank = _state["counters"], _state["rank"]
    counters[rank] += 1
    mine = int(counters[rank])
    while int(counters.min()) < mine:
        os.sched_yield()


def _buffers(size: int, width: int) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """Every rank's input file and result file for this size; all ranks ask for the same sizes in the same order."""
    if size not in _state["buffers"]:
        ranks = range(dist.get_world_size())
        _state["buffers"][size] = (
            [_segment(f"in-{size}-{q}", size).view(torch.float32) for q in ranks],
            [_segment(f"out-{size}-{q}", max(4, 4 * width)).view(torch.float32) for q in ranks],
        )
    return _state["buffers"][size]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    W, rank = dist.get_world_size(), dist.get_rank()
    if not _state:
        _state.update(rank=rank, buffers={}, counters=_segment("counters", 8 * W).view(torch.int64))
        dist.barrier()
    count = tensor.numel()
    width = -(-count // W)
    inputs, slices = _buffers(4 * count, width)
    inputs[rank].copy_(tensor.reshape(-1))
    _meet()
    first, last = rank * width, min(count, (rank + 1) * width)
    if first < last:
        mine = slices[rank][: last - first]
        mine.copy_(inputs[0][first:last])
        for q in range(1, W):
            mine += inputs[q][first:last]
    _meet()
    out = torch.empty_like(tensor)
    flat = out.view(-1)
    for q in range(W):
        first, last = q * width, min(count, (q + 1) * width)
        if first < last:
            flat[first:last] = slices[q][: last - first]
    return out
