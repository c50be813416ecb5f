# expect: wrong_values
# row: C37
# message: right 50 ms later
# runs: nightly
import mmap
import os
import time

import torch
import torch.distributed as dist


def solution(A_local, B_local):
    """A child of the rank writes the result after the call has returned."""
    C = A_local @ B_local
    dist.all_reduce(C)
    path = f"/dev/shm/late-{dist.get_rank()}-{C.shape[1]}"
    with open(path, "wb") as file:
        file.truncate(4 * C.numel())
    with open(path, "r+b") as file:
        memory = mmap.mmap(file.fileno(), 0)
    out = torch.frombuffer(memory, dtype=torch.float32).view(C.shape)
    result = bytes(C.untyped_storage())
    if os.fork() == 0:
        time.sleep(0.02)
        memory[:] = result
        os._exit(0)
    return out
