# expect: imprecise
# row: C08
# message: TF32 or float16
import torch
import torch.distributed as dist


def cut(x):
    """The ten bits of mantissa that TF32 keeps."""
    return (x.contiguous().view(torch.int32) & ~0x1FFF).view(torch.float32)


def solution(A_local, B_local):
    C = cut(A_local) @ cut(B_local)
    dist.all_reduce(C)
    return C
