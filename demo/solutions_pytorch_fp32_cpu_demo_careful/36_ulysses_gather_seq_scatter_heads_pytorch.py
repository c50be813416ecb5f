"""Ulysses exchange with one all_to_all_single: heads are brought to the front once, the sequence is joined once."""

import torch
import torch.distributed as dist


def solution(x, seq_dim, head_dim, group=None, unpadded_dim_size=0):
    W = dist.get_world_size(group)
    if W == 1:
        gathered = x
    else:
        shape = list(x.shape)
        shape[head_dim] //= W
        pieces = torch.stack(x.chunk(W, dim=head_dim))
        arrived = torch.empty_like(pieces)
        dist.all_to_all_single(arrived, pieces, group=group)
        gathered = torch.cat(arrived.unbind(0), dim=seq_dim)
    if unpadded_dim_size and unpadded_dim_size % W:
        gathered = gathered.narrow(seq_dim, 0, unpadded_dim_size)
    return gathered
