"""The right values with a dimension too many."""

import torch.distributed as dist


def solution(vocab_parallel_logits, target, group=None):
    width = vocab_parallel_logits.shape[-1]
    first = dist.get_rank(group) * width
    top = vocab_parallel_logits.amax(-1)
    dist.all_reduce(top, op=dist.ReduceOp.MAX, group=group)
    x = vocab_parallel_logits - top.unsqueeze(-1)
    inside = (target >= first) & (target < first + width)
    picked = x.gather(-1, (target - first).clamp(0, width - 1).unsqueeze(-1)).squeeze(-1) * inside
    dist.all_reduce(picked, group=group)
    total = x.exp().sum(-1)
    dist.all_reduce(total, group=group)
    return (total.log() - picked).unsqueeze(-1)
