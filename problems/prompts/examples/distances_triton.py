"""Overlap. Squared distances of this rank's queries to the keys of all ranks: out[:, s*n:(s+1)*n] = |q - k_s|^2.

Every rank shows its keys in symmetric memory. A small Triton grid pulls the keys of the next peer over its pointer on a
side stream, while the matrix product with the keys that are already here fills the other SMs.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def pull_kernel(pointers, peer, here, words, BLOCK: tl.constexpr):
    """Copies 8-byte words from the buffer of ``peer``; ``pointers`` is the address of the table of all buffers."""
    table = pointers.to(tl.pointer_type(tl.uint64))
    there = tl.load(table + peer).to(tl.pointer_type(tl.int64))
    there = tl.multiple_of(there, 16)
    start = tl.program_id(0) * BLOCK
    for first in range(start, words, tl.num_programs(0) * BLOCK):
        at = first + tl.arange(0, BLOCK)
        tl.store(here + at, tl.load(there + at, mask=at < words), mask=at < words)


PROGRAMS, BLOCK = 16, 4096
_workspaces = {}


def workspace(k: torch.Tensor):
    """Symmetric buffer of whole words, its handle, two landing places, a side stream: made once per shape."""
    key = (tuple(k.shape), k.dtype, k.device)
    if key not in _workspaces:
        words = -(-k.nbytes // 8)
        shown = symm_mem.empty(words, dtype=torch.int64, device=k.device)
        handle = symm_mem.rendezvous(shown, dist.group.WORLD)
        landing = [torch.empty_like(shown), torch.empty_like(shown)]
        _workspaces[key] = shown, handle, landing, torch.cuda.Stream(k.device)
    return _workspaces[key]


def as_keys(words: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """The words of a buffer, seen with shape and dtype of ``k``."""
    return words.view(k.dtype)[: k.numel()].view(k.shape)


def solution(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    shown, handle, landing, side = workspace(k)
    main = torch.cuda.current_stream()
    as_keys(shown, k).copy_(k)
    handle.barrier(channel=0)  # the keys of all ranks are in place
    n = k.shape[0]
    out = torch.empty(q.shape[0], world * n, dtype=q.dtype, device=q.device)
    q_norm = q.float().square().sum(1, keepdim=True)
    side.wait_stream(main)
    freed = [None, None]  # event after which a landing place may be overwritten
    keys = k
    for hop in range(world):
        source = (rank + hop) % world
        if hop + 1 < world:  # fetch the next peer's keys while these are worked on
            place = (hop + 1) % 2
            with torch.cuda.stream(side):
                if freed[place] is not None:
                    side.wait_event(freed[place])
                peer = (rank + hop + 1) % world
                pull_kernel[(PROGRAMS,)](handle.buffer_ptrs_dev, peer, landing[place], shown.numel(), BLOCK=BLOCK)
                arrived = side.record_event()
        products = torch.matmul(q, keys.t()).float()
        block = q_norm + keys.float().square().sum(1) - 2 * products
        out[:, source * n : (source + 1) * n] = block.to(out.dtype)
        freed[hop % 2] = main.record_event()
        if hop + 1 < world:
            main.wait_event(arrived)
            keys = as_keys(landing[place], k)
    handle.barrier(channel=1)  # nobody reads our keys any more: the next call may overwrite them
    return out
