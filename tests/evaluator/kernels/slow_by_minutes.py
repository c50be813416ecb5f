# expect: correct
# decision: none
# timing_seconds: 3
# message: too slow to be compared
import time

import torch.distributed as dist


def solution(A_local, B_local):
    time.sleep(0.3)
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
