# expect: correct
# row: C54
# timing_seconds: 6
# runs: nightly
import torch
import torch.distributed as dist

left = []


def solution(A_local, B_local):
    """Right, but receives are posted that nobody will ever answer."""
    left.append(dist.irecv(torch.empty(4), (dist.get_rank() + 1) % dist.get_world_size(), tag=7))
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
