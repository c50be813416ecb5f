"""Row-sharded embedding lookup without requests: every rank shows its shard and gathers rows over the owners' pointers.

The reference asks the owners in one exchange and gets the rows in a second one. With the table in symmetric memory the
owner need not be asked: one program per row loads from where the row lies.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def gather_rows(pointers, wanted, out, shard_rows, bytes_per_row, BLOCK: tl.constexpr):
    """Row ``wanted[j]`` of the whole table to row j of ``out``, as bytes."""
    j = tl.program_id(0).to(tl.int64)
    row = tl.load(wanted + j)
    table = pointers.to(tl.pointer_type(tl.uint64))
    shard = tl.multiple_of(tl.load(table + row // shard_rows).to(tl.pointer_type(tl.int16)), 16)
    words = bytes_per_row // 2
    for first in range(0, words, BLOCK):
        at = first + tl.arange(0, BLOCK)
        values = tl.load(shard + (row % shard_rows) * words + at, mask=at < words)
        tl.store(out + j * words + at, values, mask=at < words)


_workspaces = {}


def workspace(shard: torch.Tensor):
    """Symmetric buffer for the shard and its handle: made once per shape and dtype."""
    key = (tuple(shard.shape), shard.dtype, shard.device)
    if key not in _workspaces:
        buffer = symm_mem.empty(shard.shape, dtype=shard.dtype, device=shard.device)
        _workspaces[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    return _workspaces[key]


def solution(indices: torch.Tensor, local_shard: torch.Tensor) -> torch.Tensor:
    shown, handle = workspace(local_shard)
    shown.copy_(local_shard)
    handle.barrier(channel=0)  # all shards are there
    S, N = local_shard.shape
    wanted = indices[torch.argsort(indices // S, stable=True)]  # grouped by owner, as the result must be
    out = local_shard.new_empty((len(indices), N))
    row_bytes = N * local_shard.element_size()
    if out.numel():
        gather_rows[(len(indices),)](
            handle.buffer_ptrs_dev,
            wanted,
            out.view(torch.int16),
            S,
            row_bytes,
            BLOCK=min(triton.next_power_of_2(max(row_bytes // 2, 1)), 1024),
        )
    handle.barrier(channel=1)  # everybody has read: the next call may overwrite
    return out
