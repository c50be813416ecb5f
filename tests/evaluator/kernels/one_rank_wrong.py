# expect: wrong_values
# message: Rank 1 delivers wrong values.*rows 64-\d+ of
import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    dist.all_reduce(C)
    if dist.get_rank() == 1:
        C[64:] *= 1.1
    return C
