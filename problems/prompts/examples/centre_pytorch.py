"""Fusion. out = clamp(x - mean over ranks of x, -1, 1) + y, and the global maximum of |x|: one exchange instead of two.

Collectives of small tensors cost latency, not bandwidth. The slices of x and every rank's maximum travel in one
all-to-all, the reduced slices and the global maximum in one all-gather, and the arithmetic is done on the slice while
it is in registers of one reduction.
"""

import torch
import torch.distributed as dist


def solution(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    world = dist.get_world_size()
    flat = x.reshape(-1)
    share = -(-flat.numel() // world)  # elements per rank, the last share padded
    sent = flat.new_zeros(world, share + 1)
    padded = torch.nn.functional.pad(flat, (0, world * share - flat.numel()))
    sent[:, :share] = padded.view(world, share)
    sent[:, share] = flat.abs().amax()
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    # Row s is rank s's version of this rank's share; means are formed in float32 and travel in the dtype of x.
    reduced = torch.empty_like(sent[0])
    reduced[:share] = received[:, :share].float().mean(0).to(x.dtype)
    reduced[share] = received[:, share].amax()
    gathered = torch.empty(world * (share + 1), dtype=x.dtype, device=x.device)
    dist.all_gather_into_tensor(gathered, reduced)
    table = gathered.view(world, share + 1)
    mean = table[:, :share].reshape(-1)[: flat.numel()].view(x.shape)
    return (x - mean).clamp_(-1, 1).add_(y), table[0, share]
