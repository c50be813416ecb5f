"""A workspace larger than any GPU."""

# expect: out_of_memory
# says: out of memory

import torch


def solution(tensor):
    workspace = torch.empty(1 << 40, dtype=torch.uint8, device=tensor.device)
    return tensor + workspace[0]
