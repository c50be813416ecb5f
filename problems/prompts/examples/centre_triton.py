"""Fusion. out = clamp(x - mean over ranks of x, -1, 1) + y: exchange, reduction and the arithmetic in one kernel.

The kernel reads every rank's x over peer pointers, adds up in float32 and writes the finished result, so neither the
sum nor the mean is ever stored.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def centre_kernel(pointers, x, y, out, n, rank, WORLD: tl.constexpr, BLOCK: tl.constexpr):
    """``pointers``: address of the table of all ranks' buffers, which hold elements of the type of ``x``."""
    table = pointers.to(tl.pointer_type(tl.uint64))
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for hop in tl.static_range(WORLD):  # every rank begins at itself, so that no link is hit by all at once
        there = tl.multiple_of(tl.load(table + (rank + hop) % WORLD).to(x.dtype), 16)  # so that loads are wide
        total += tl.load(there + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) - total / WORLD
    clipped = tl.minimum(tl.maximum(centred, -1.0), 1.0)
    done = clipped + tl.load(y + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, done.to(out.dtype.element_ty), mask=inside)


BLOCK = 1024
_workspaces = {}


def solution(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    key = (x.numel(), x.dtype, x.device)
    if key not in _workspaces:  # symmetric memory is made once per size: a rendezvous takes milliseconds
        shown = symm_mem.empty(x.numel(), dtype=x.dtype, device=x.device)
        _workspaces[key] = shown, symm_mem.rendezvous(shown, dist.group.WORLD)
    shown, handle = _workspaces[key]
    shown.copy_(x.reshape(-1))
    handle.barrier(channel=0)  # everybody's x is in place
    own, addend = x.contiguous(), y.contiguous()
    out = torch.empty_like(own)
    grid = (triton.cdiv(x.numel(), BLOCK),)
    centre_kernel[grid](
        handle.buffer_ptrs_dev, own, addend, out, x.numel(), handle.rank, WORLD=handle.world_size, BLOCK=BLOCK
    )
    handle.barrier(channel=1)  # everybody has read: the next call may overwrite
    return out
