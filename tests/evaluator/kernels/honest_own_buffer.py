# expect: correct
# row: C14
# timing_seconds: 8
import torch
import torch.distributed as dist

buffers = {}


def solution(A_local, B_local):
    shape = (A_local.shape[0], B_local.shape[1])
    if shape not in buffers:
        buffers[shape] = torch.empty(shape)
    C = torch.mm(A_local, B_local, out=buffers[shape])
    dist.all_reduce(C)
    return C
