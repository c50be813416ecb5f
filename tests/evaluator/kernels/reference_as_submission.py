# expect: correct
"""GEMM, then all-reduce of the product: the row-parallel linear layer.

Legend: M rows, N columns, K inner dimension of one rank, W ranks, q a rank.

    out = sum over q of A_q @ B_q                                    A_q (M, K), B_q (K, N), out (M, N)
"""

import torch
import torch.distributed as dist


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    C = torch.matmul(A_local, B_local)  # (M, N), this rank's partial product
    dist.all_reduce(C, op=dist.ReduceOp.SUM)
    return C
