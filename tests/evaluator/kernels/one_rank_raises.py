# expect: runtime_error
# message: Rank 3 failed in solution: ValueError: no such luck
# primary: 3
import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    if dist.get_rank() == 3:
        raise ValueError("no such luck")
    dist.all_reduce(C)
    return C
