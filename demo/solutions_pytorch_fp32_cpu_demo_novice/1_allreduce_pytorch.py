"""All-reduce of neighbours only: the share of the rank across is missing."""

import torch
import torch.distributed as dist


def solution(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.stack(parts[:-1]).sum(0)
