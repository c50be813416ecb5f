"""All-gather with the list form of torch.distributed: plain, and as fast as the baseline."""

import torch
import torch.distributed as dist


def solution(tensor: torch.Tensor) -> torch.Tensor:
    out = tensor.new_empty((dist.get_world_size(), *tensor.shape))
    dist.all_gather(list(out.unbind(0)), tensor.contiguous())
    return out
