# expect: wrong_values
# row: C10
# message: rows 192-255 of 256, those of rank 3
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    """The last of as many chunks as there are ranks is not reduced."""
    C = A_local @ B_local
    chunks = C.chunk(dist.get_world_size())
    for chunk in chunks[:-1]:
        dist.all_reduce(chunk)
    return C
