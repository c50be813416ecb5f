# expect: wrong_structure
# row: C13
# message: the input A_local was changed
import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    dist.all_reduce(C)
    A_local[0, 0] += 1
    return C
