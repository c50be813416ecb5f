# expect: correct
# row: C36 C37
# probes: yes
# runs: nightly
import threading

import torch
import torch.distributed as dist


def solution(A_local, B_local):
    """Half of the rows by another thread, which has ended when the call returns."""
    C = torch.empty(A_local.shape[0], B_local.shape[1])
    half = len(C) // 2
    thread = threading.Thread(target=lambda: torch.mm(A_local[:half], B_local, out=C[:half]))
    thread.start()
    torch.mm(A_local[half:], B_local, out=C[half:])
    thread.join()
    dist.all_reduce(C)
    return C
