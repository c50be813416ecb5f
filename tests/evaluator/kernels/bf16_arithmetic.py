# expect: imprecise
# row: C08
# message: arithmetic in bfloat16
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    C = (A_local.bfloat16() @ B_local.bfloat16()).float()
    dist.all_reduce(C)
    return C
