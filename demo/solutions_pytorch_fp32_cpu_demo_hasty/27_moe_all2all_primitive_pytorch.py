"""Row-wise all-to-all that ignores the split sizes: crashes as soon as they are uneven."""

import torch
import torch.distributed as dist


def solution(local_tensor, input_split_sizes=None, output_split_sizes=None, group=None):
    W = dist.get_world_size(group)
    blocks = local_tensor.view(W, local_tensor.shape[0] // W, *local_tensor.shape[1:])
    if input_split_sizes is not None and len(set(input_split_sizes)) > 1:
        raise ValueError(f"rank {dist.get_rank(group)}: uneven splits {input_split_sizes} are not supported")
    out = torch.empty_like(blocks)
    dist.all_to_all_single(out, blocks.contiguous(), group=group)
    return out.flatten(0, 1)
