# expect: runtime_error
# row: C51
# message: was ended by SIGKILL
# runs: nightly
import os
import signal

import torch.distributed as dist


def solution(A_local, B_local):
    if dist.get_rank() == 0:
        for name in os.listdir("/proc"):
            if name.isdigit() and int(name) > os.getpid():
                os.kill(int(name), signal.SIGKILL)
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
