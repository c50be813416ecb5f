"""Every rank takes the GPU of its own number, where there is one for all."""

# expect: runtime_error
# says: cuda:

import torch.distributed as dist


def solution(tensor):
    out = tensor.to(f"cuda:{dist.get_rank()}")
    dist.all_reduce(out)
    return out
