# expect: wrong_structure
# row: C28
# message: an object of solution\.Lazy
import torch
import torch.distributed as dist


class Lazy(torch.Tensor):
    pass


def solution(A_local, B_local):
    C = A_local @ B_local
    dist.all_reduce(C)
    return C.as_subclass(Lazy)
