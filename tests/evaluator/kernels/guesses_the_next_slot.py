# expect: wrong_values
# row: C16 C38
# runs: nightly
import gc

import torch
import torch.distributed as dist

ahead = {}


def between_calls(phase, info):
    """Called by the garbage collector while arguments are laid out: multiplies what is there, before anybody measures."""
    for thing in gc.get_objects():
        if type(thing) is list and len(thing) == 2 and all(type(x) is torch.Tensor and x.ndim == 2 for x in thing):
            ahead[thing[0].data_ptr(), thing[0].shape] = thing[0] @ thing[1]


gc.callbacks.append(between_calls)


def solution(A_local, B_local):
    C = ahead.pop((A_local.data_ptr(), A_local.shape), None)
    C = A_local @ B_local if C is None else C
    dist.all_reduce(C)
    return C
