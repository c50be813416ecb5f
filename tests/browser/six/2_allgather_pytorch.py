"""Crashes on rank 2."""

import torch
import torch.distributed as dist


def solution(tensor):
    if dist.get_rank() == 2:
        raise RuntimeError("rank 2 gives up on purpose")
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.stack(parts)
