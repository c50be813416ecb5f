"""Forgets the share of the last rank: its part of the sequence stays empty."""

import torch
import torch.distributed as dist


def solution(x, seq_dim, head_dim, group=None, unpadded_dim_size=0):
    world = dist.get_world_size(group)
    heads = [piece.contiguous() for piece in torch.tensor_split(x, world, dim=head_dim)]
    received = [torch.empty_like(piece) for piece in heads]
    dist.all_to_all(received, heads, group=group)
    received[-1].zero_()
    out = torch.cat(received, dim=seq_dim)
    if unpadded_dim_size % world != 0:
        out = out.narrow(seq_dim, 0, unpadded_dim_size)
    return out
