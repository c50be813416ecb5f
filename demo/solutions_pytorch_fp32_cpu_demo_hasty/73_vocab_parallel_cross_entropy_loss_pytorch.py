"""Vocab-parallel cross entropy that gathers all logits: right, with V / 2 times the traffic that is needed."""

import torch
import torch.distributed as dist


def solution(vocab_parallel_logits, target, group=None):
    shards = [torch.empty_like(vocab_parallel_logits) for _ in range(dist.get_world_size(group))]
    dist.all_gather(shards, vocab_parallel_logits.contiguous(), group=group)
    logits = torch.cat(shards, dim=-1)
    picked = logits.gather(-1, target.unsqueeze(-1)).squeeze(-1)
    return torch.logsumexp(logits, dim=-1) - picked
