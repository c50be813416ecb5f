"""Ulysses exchange in which rank 0 forgets to join the exchange for long sequences: everybody else waits for ever."""

import torch
import torch.distributed as dist


def solution(x, seq_dim, head_dim, group=None, unpadded_dim_size=0):
    W = dist.get_world_size(group)
    pieces = [piece.contiguous() for piece in x.chunk(W, dim=head_dim)]
    arrived = [torch.empty_like(piece) for piece in pieces]
    if dist.get_rank(group) == 0 and x.shape[seq_dim] > 1:
        dist.barrier(group=group)
    dist.all_to_all(arrived, pieces, group=group)
    return torch.cat(arrived, dim=seq_dim)
