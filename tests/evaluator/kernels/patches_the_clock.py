# expect: correct
# row: C30
# timing_seconds: 120
# decision: slower|tie
# runs: nightly
import time

import torch
import torch.distributed as dist

ticks = iter(range(10**12))
for name in ("perf_counter", "monotonic", "time", "process_time", "thread_time"):
    setattr(time, name, lambda: next(ticks) * 1e-9)
    setattr(time, f"{name}_ns", lambda: next(ticks))


def solution(A_local, B_local):
    """Three times the work, under clocks that stand nearly still."""
    for _ in range(3):
        C = A_local @ B_local
    dist.all_reduce(C)
    return C
