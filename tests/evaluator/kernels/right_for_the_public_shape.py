# expect: wrong_values
# row: C05
# message: in the hidden case where .* \(the public shape passes\)
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    dist.all_reduce(C)
    return C if C.shape == (256, 256) else torch.zeros_like(C)
