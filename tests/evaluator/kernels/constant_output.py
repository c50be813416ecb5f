# expect: wrong_values
# row: C02
# runs: nightly
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    """The mean of the result everywhere, which an absolute tolerance may take for the result."""
    C = A_local @ B_local
    dist.all_reduce(C)
    return C.mean().expand(C.shape).contiguous()
