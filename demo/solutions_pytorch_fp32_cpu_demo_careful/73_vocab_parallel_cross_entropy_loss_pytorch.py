"""Vocab-parallel cross entropy with one exchange instead of three.

Each rank sends its local maximum, its sum of exponentials relative to that and the target's logit (minus infinity
where another rank owns the column) in one all-gather; the log-sum-exp of the whole row follows from these.
"""

import torch
import torch.distributed as dist


def solution(vocab_parallel_logits, target, group=None):
    W, rank = dist.get_world_size(group), dist.get_rank(group)
    width = vocab_parallel_logits.shape[-1]
    logits = vocab_parallel_logits.float()
    local = torch.logsumexp(logits, dim=-1)
    column = target - rank * width
    mine = (column >= 0) & (column < width)
    picked = logits.gather(-1, column.clamp(0, width - 1).unsqueeze(-1)).squeeze(-1)
    picked = torch.where(mine, picked, torch.full_like(picked, -torch.inf))
    packed = torch.stack((local, picked))
    parts = [torch.empty_like(packed) for _ in range(W)]
    dist.all_gather(parts, packed, group=group)
    whole = torch.stack(parts)
    loss = torch.logsumexp(whole[:, 0], dim=0) - whole[:, 1].amax(dim=0)
    return loss.to(vocab_parallel_logits.dtype)
