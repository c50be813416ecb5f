# expect: runtime_error
# row: C51
# message: could not be launched again
# timing_seconds: 6
import os
import resource

import torch.distributed as dist


def solution(A_local, B_local):
    """Takes the limits of the fork server away from it, so that it could not start ranks again."""
    try:
        resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE, (5, 5))
    except PermissionError:
        pass
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
