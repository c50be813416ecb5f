# expect: wrong_values
# row: C14
# timing_seconds: 120
# message: In timed call \d+: .*The output is that of timed call \d+
import torch.distributed as dist

calls = 0
previous = None


def solution(A_local, B_local):
    """Right while few calls have been made, as in trials and warm-up; later hands out what it has."""
    global calls, previous
    calls += 1
    if calls < 26:
        C = A_local @ B_local
        dist.all_reduce(C)
        previous = C
    return previous
