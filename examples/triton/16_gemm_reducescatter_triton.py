"""GEMM + reduce-scatter: the product goes into symmetric memory, a Triton kernel adds up the own rows of all ranks."""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def add_up(pointers, out, numel, rank, world, ELEMENT: tl.constexpr, BLOCK: tl.constexpr):
    """out = sum over ranks q, in their order and in float32, of elements rank * numel … of q's buffer."""
    table = pointers.to(tl.pointer_type(tl.uint64))
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for q in range(world):
        shown = tl.multiple_of(tl.load(table + q).to(tl.pointer_type(ELEMENT)), 16)
        total += tl.load(shown + rank * numel + at, mask=at < numel, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=at < numel)


ELEMENTS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
BLOCK = 1024
_workspaces = {}


def workspace(rows: int, columns: int, like: torch.Tensor):
    """Symmetric buffer for a product and its handle: made once per shape and dtype."""
    key = (rows, columns, like.dtype, like.device)
    if key not in _workspaces:
        buffer = symm_mem.empty(rows, columns, dtype=like.dtype, device=like.device)
        _workspaces[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    return _workspaces[key]


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    rows, columns = A_local.shape[0], B_local.shape[1]
    shown, handle = workspace(rows, columns, A_local)
    torch.matmul(A_local, B_local, out=shown)
    handle.barrier(channel=0)  # the products of all ranks are finished
    out = torch.empty(rows // handle.world_size, columns, dtype=A_local.dtype, device=A_local.device)
    add_up[(triton.cdiv(out.numel(), BLOCK),)](
        handle.buffer_ptrs_dev,
        out,
        out.numel(),
        handle.rank,
        handle.world_size,
        ELEMENT=ELEMENTS[out.dtype],
        BLOCK=BLOCK,
    )
    handle.barrier(channel=1)  # everybody has read: the next product may overwrite
    return out
