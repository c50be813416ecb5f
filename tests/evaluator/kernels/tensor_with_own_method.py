# expect: wrong_structure
# row: C28
# message: without attributes of its own
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    """A plain tensor whose comparison would run a function of the submission."""
    C = torch.zeros(A_local.shape[0], B_local.shape[1])
    C.double = lambda: (A_local @ B_local).double()
    return C
