"""All-gather by one broadcast after the other: right, with W collectives where one would do."""

import torch.distributed as dist


def solution(tensor):
    out = tensor.new_empty((dist.get_world_size(), *tensor.shape))
    out[dist.get_rank()] = tensor
    for q in range(dist.get_world_size()):
        dist.broadcast(out[q], src=q)
    return out
