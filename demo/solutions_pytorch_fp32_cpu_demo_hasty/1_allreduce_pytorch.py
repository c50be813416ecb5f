"""All-reduce as a gather of everything and a sum: right, but each rank receives W - 1 whole tensors."""

import torch
import torch.distributed as dist


def solution(tensor):
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor.contiguous())
    return torch.stack(parts).double().sum(0).to(tensor.dtype)
