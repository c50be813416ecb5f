# expect: wrong_values
# row: C09
# problem: 73
# message: overflow without subtracting the maximum
# runs: nightly
import torch
import torch.distributed as dist


def solution(vocab_parallel_logits, target, group=None):
    """The loss without subtracting the maximum first: right while exp does not overflow."""
    width = vocab_parallel_logits.shape[-1]
    first = dist.get_rank(group) * width
    elsewhere = (target < first) | (target >= first + width)
    column = (target - first).masked_fill(elsewhere, 0)
    predicted = vocab_parallel_logits.gather(-1, column.unsqueeze(-1)).squeeze(-1).masked_fill(elsewhere, 0.0)
    dist.all_reduce(predicted, group=group)
    total = vocab_parallel_logits.double().exp().sum(dim=-1)
    dist.all_reduce(total, group=group)
    return (total.log() - predicted).float()
