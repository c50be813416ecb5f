# expect: wrong_values
# row: C14
# message: the output of the trial .public 1., which had other inputs
import torch.distributed as dist

previous = {}


def solution(A_local, B_local):
    shape = (A_local.shape[0], B_local.shape[1])
    if shape not in previous:
        C = A_local @ B_local
        dist.all_reduce(C)
        previous[shape] = C
    return previous[shape]
