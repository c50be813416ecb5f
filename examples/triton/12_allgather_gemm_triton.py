"""All-gather + GEMM in one Triton kernel: the product reads the blocks of A from the peers while it multiplies.

A is never gathered: each program works through the inner dimension rank by rank, beginning with the own shard, and
loads its tile of A over the pointer of the rank that has it. The next tile loads while this one multiplies.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl


@triton.jit
def gather_matmul(
    pointers,
    b,
    out,
    M,
    N,
    K_LOCAL,
    rank,
    world,
    ELEMENT: tl.constexpr,
    PRECISION: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
):
    """out (M, N) = [A_0, A_1, ...] @ b; ``pointers``: table of the ranks' A_q (M, K_LOCAL), row-major."""
    table = pointers.to(tl.pointer_type(tl.uint64))
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for hop in range(world):
        q = (rank + hop) % world
        a = tl.multiple_of(tl.load(table + q).to(tl.pointer_type(ELEMENT)), 16)  # so that loads are wide
        for first in range(0, K_LOCAL, BK):
            k = first + inner
            left = tl.load(
                a + rows[:, None].to(tl.int64) * K_LOCAL + k[None, :],
                mask=(rows[:, None] < M) & (k[None, :] < K_LOCAL),
                other=0.0,
            )
            right = tl.load(
                b + (q * K_LOCAL + k)[:, None].to(tl.int64) * N + columns[None, :],
                mask=(k[:, None] < K_LOCAL) & (columns[None, :] < N),
                other=0.0,
            )
            total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(
        out + rows[:, None].to(tl.int64) * N + columns[None, :],
        total.to(out.dtype.element_ty),
        mask=(rows[:, None] < M) & (columns[None, :] < N),
    )


ELEMENTS = {torch.bfloat16: tl.bfloat16, torch.float16: tl.float16, torch.float32: tl.float32}
_workspaces = {}


def workspace(like: torch.Tensor):
    """Symmetric buffer for the own shard and its handle: made once per shape and dtype."""
    key = (tuple(like.shape), like.dtype, like.device)
    if key not in _workspaces:
        buffer = symm_mem.empty(like.shape, dtype=like.dtype, device=like.device)
        _workspaces[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    return _workspaces[key]


def solution(A_local: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    shown, handle = workspace(A_local)
    shown.copy_(A_local)
    handle.barrier(channel=0)  # all shards are there
    (M, K_local), N = A_local.shape, B.shape[1]
    B = B.contiguous()
    out = torch.empty(M, N, dtype=B.dtype, device=B.device)
    wide = B.dtype == torch.float32
    BM, BN, BK = (64, 64, 32) if wide else (128, 128, 64)
    gather_matmul[(triton.cdiv(M, BM), triton.cdiv(N, BN))](
        handle.buffer_ptrs_dev,
        B,
        out,
        M,
        N,
        K_local,
        handle.rank,
        handle.world_size,
        ELEMENT=ELEMENTS[B.dtype],
        PRECISION="ieee" if wide else "tf32",  # tf32 means nothing to 16-bit elements
        BM=BM,
        BN=BN,
        BK=BK,
        num_warps=4 if wide else 8,
    )
    handle.barrier(channel=1)  # everybody has read: the next call may overwrite
    return out
