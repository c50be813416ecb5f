# expect: wrong_values
# row: C18 C19
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    out = torch.empty(A_local.shape[0], B_local.shape[1])
    C = A_local @ B_local
    dist.all_reduce(C)
    out[1:] = C[1:]
    return out
