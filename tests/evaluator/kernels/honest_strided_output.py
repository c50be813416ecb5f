# expect: correct
# row: C29
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    C = (B_local.T @ A_local.T).contiguous()
    dist.all_reduce(C)
    return C.T
