# expect: imprecise
# row: C08
# message: bfloat16
# runs: nightly
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    """Products in float32, the sum over the ranks in bfloat16."""
    C = (A_local @ B_local).bfloat16()
    dist.all_reduce(C)
    return C.float()
