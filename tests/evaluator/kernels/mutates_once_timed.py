# expect: wrong_structure
# row: C13
# timing_seconds: 120
# message: the input A_local was changed
# runs: nightly
import torch.distributed as dist

calls = 0


def solution(A_local, B_local):
    """Leaves the inputs alone while few calls have been made."""
    global calls
    calls += 1
    C = A_local @ B_local
    dist.all_reduce(C)
    if calls > 25:
        A_local.zero_()
    return C
