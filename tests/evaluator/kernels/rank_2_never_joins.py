# expect: deadlock
# row: C52
# message: rank 2 has returned
# call_seconds: 2
import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    if dist.get_rank() != 2:
        dist.all_reduce(C)
    return C
