# expect: correct
# row: C36 C54
# probes: yes
# runs: nightly
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    """Communication of one half while the other is multiplied; everything is waited for."""
    half = A_local.shape[0] // 2
    first = A_local[:half] @ B_local
    work = dist.all_reduce(first, async_op=True)
    second = A_local[half:] @ B_local
    dist.all_reduce(second)
    work.wait()
    return torch.cat([first, second])
