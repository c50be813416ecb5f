# expect: imprecise
# row: C08 C46
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    C = (A_local @ B_local).half()
    dist.all_reduce(C)
    return C.float()
