"""Convolution over strips of an image: each rank pushes its border rows into the neighbours' padded strips.

The strip with its borders lies in symmetric memory. One Triton kernel writes the own rows to the middle and, over the
neighbours' pointers, the last rows above rank r + 1's and the first rows below rank r - 1's; after a barrier the
convolution reads the strip in place. Nothing else moves: no rank receives rows that it does not need.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def push(
    x, pointers, height, width, pad, rank, above, below, rows_up, rows_down, ELEMENT: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Row ``program_id(0)`` of x (planes, height, width) to its places in strips (planes, height + 2 pad, width).

    ``above``, ``below``: the neighbours' ranks; ``rows_up``, ``rows_down``: how many rows each of them gets.
    """
    row = tl.program_id(0)
    plane, y = row // height, row % height
    table = pointers.to(tl.pointer_type(tl.uint64))
    strip = (height + 2 * pad) * width
    here = tl.load(table + rank).to(tl.pointer_type(ELEMENT)) + plane.to(tl.int64) * strip
    up = tl.load(table + above).to(tl.pointer_type(ELEMENT)) + plane.to(tl.int64) * strip
    down = tl.load(table + below).to(tl.pointer_type(ELEMENT)) + plane.to(tl.int64) * strip
    width_up = tl.where(y < rows_up, width, 0)  # nothing of a row that the neighbour does not need
    width_down = tl.where(y >= height - rows_down, width, 0)
    for first in range(0, width, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < width
        values = tl.load(x + row.to(tl.int64) * width + at, mask=inside)
        tl.store(here + (pad + y) * width + at, values, mask=inside)
        tl.store(up + (pad + height + y) * width + at, values, mask=at < width_up)
        tl.store(down + (y - height + pad) * width + at, values, mask=at < width_down)


torch.backends.cudnn.allow_tf32 = False  # a float32 image is convolved in float32

ELEMENTS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
_workspaces = {}


def workspace(x: torch.Tensor, pad: int, group: dist.ProcessGroup):
    """Symmetric strip, zero where the image ends, and its handle: made once per shape, padding and group."""
    key = (tuple(x.shape), pad, x.dtype, x.device, group.group_name)
    if key not in _workspaces:
        B, C, H, N = x.shape
        buffer = symm_mem.empty(B, C, H + 2 * pad, N, dtype=x.dtype, device=x.device).zero_()
        handle = symm_mem.rendezvous(buffer, group)
        handle.barrier(channel=1)  # all strips are zero before anybody writes
        _workspaces[key] = buffer, handle
    return _workspaces[key]


def solution(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: int = 1,
    padding: int = 1,
    group: dist.ProcessGroup | None = None,
) -> torch.Tensor:
    group = dist.group.WORLD if group is None else group
    world, pad = dist.get_world_size(group), int(padding)
    if pad == 0 or world == 1:
        return F.conv2d(x, weight, bias, stride=stride, padding=padding)
    strip, handle = workspace(x, pad, group)
    rank = handle.rank
    B, C, H, N = x.shape
    push[(B * C * H,)](
        x.contiguous(),
        handle.buffer_ptrs_dev,
        H,
        N,
        pad,
        rank,
        max(rank - 1, 0),
        min(rank + 1, world - 1),
        pad if rank > 0 else 0,
        pad if rank < world - 1 else 0,
        ELEMENT=ELEMENTS[x.dtype],
        BLOCK=min(triton.next_power_of_2(N), 2048),
    )
    handle.barrier(channel=0)  # the neighbours' rows are there
    out = F.conv2d(strip, weight, bias, stride=stride, padding=(0, pad))
    handle.barrier(channel=1)  # everybody has read its strip: the next call may overwrite
    return out
