"""GEMM and all-reduce in two halves: while the first half of the rows is summed, the second is multiplied."""

import torch
import torch.distributed as dist


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    rows = A_local.shape[0]
    out = A_local.new_empty((rows, B_local.shape[1]))
    half = rows // 2
    pending = []
    for first, last in ((0, half), (half, rows)):
        torch.matmul(A_local[first:last], B_local, out=out[first:last])
        pending.append(dist.all_reduce(out[first:last], async_op=True))
    for work in pending:
        work.wait()
    return out
