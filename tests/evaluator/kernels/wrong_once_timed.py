# expect: wrong_values
# row: C07
# timing_seconds: 120
# message: In timed call \d+
import torch.distributed as dist

calls = 0


def solution(A_local, B_local):
    """Right while few calls have been made; later leaves the communication out."""
    global calls
    calls += 1
    C = A_local @ B_local
    if calls < 26:
        dist.all_reduce(C)
    return C
