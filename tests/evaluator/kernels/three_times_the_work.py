# expect: correct
# timing_seconds: 120
# decision: slower
import torch.distributed as dist


def solution(A_local, B_local):
    for _ in range(3):
        C = A_local @ B_local
    dist.all_reduce(C)
    return C
