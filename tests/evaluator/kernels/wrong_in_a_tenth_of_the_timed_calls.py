# expect: wrong_values
# row: C07 C14
# timing_seconds: 120
# message: In timed call \d+
# runs: nightly
import os

import torch
import torch.distributed as dist

calls = 0


def solution(A_local, B_local):
    """Leaves the communication out now and then, by chance, once the trials are over."""
    global calls
    calls += 1
    C = A_local @ B_local
    lazy = torch.tensor([os.urandom(1)[0] < 26 if calls > 25 and dist.get_rank() == 0 else 0])
    dist.broadcast(lazy, 0)
    if not lazy.item():
        dist.all_reduce(C)
    return C
