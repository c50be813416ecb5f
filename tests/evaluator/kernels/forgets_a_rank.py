# expect: wrong_values
# row: C10
# message: exactly rank 2's share missing
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    if dist.get_rank() == 2:
        C.zero_()
    dist.all_reduce(C)
    return C
