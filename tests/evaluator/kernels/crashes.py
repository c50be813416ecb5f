# expect: runtime_error
# message: Rank 1 was ended by SIGSEGV
# primary: 1
import ctypes

import torch.distributed as dist


def solution(A_local, B_local):
    if dist.get_rank() == 1:
        ctypes.string_at(0)
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
