# expect: wrong_values
# row: C37 C38
# message: .
import threading
import time

import torch
import torch.distributed as dist

seen = []


def solution(A_local, B_local):
    """Hands the work to a thread that should do it between the calls, when nobody takes the time."""
    out = torch.empty(A_local.shape[0], B_local.shape[1])

    def later():
        time.sleep(0.005)
        C = A_local @ B_local
        dist.all_reduce(C)
        out.copy_(C)

    thread = threading.Thread(target=later, daemon=True)
    thread.start()
    seen.append(thread)
    return out
