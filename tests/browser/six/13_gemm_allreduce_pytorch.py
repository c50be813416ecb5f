"""The reference itself: correct, and neither faster nor slower than the baseline."""

import torch
import torch.distributed as dist


def solution(A_local, B_local):
    C = torch.matmul(A_local, B_local)
    dist.all_reduce(C, op=dist.ReduceOp.SUM)
    return C
