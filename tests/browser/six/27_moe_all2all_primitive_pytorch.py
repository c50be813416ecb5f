"""Deadlock: rank 0 waits in a barrier that no other rank enters."""

import torch.distributed as dist


def solution(local_tensor, input_split_sizes=None, output_split_sizes=None, group=None):
    rows = sum(output_split_sizes) if output_split_sizes is not None else local_tensor.shape[0]
    out = local_tensor.new_empty((rows, *local_tensor.shape[1:]))
    if dist.get_rank() == 0:
        dist.barrier()
    dist.all_to_all_single(out, local_tensor.contiguous(), output_split_sizes, input_split_sizes, group=group)
    return out
