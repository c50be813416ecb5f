# expect: correct
# row: C12 C13
# problem: 73
# probes: yes
import torch
import torch.distributed as dist


def solution(vocab_parallel_logits, target, group=None):
    """Writes over the logits, which the problem allows, in another way than the reference does."""
    width = vocab_parallel_logits.shape[-1]
    first = dist.get_rank(group) * width
    highest = vocab_parallel_logits.amax(dim=-1)
    dist.all_reduce(highest, op=dist.ReduceOp.MAX, group=group)
    elsewhere = (target < first) | (target >= first + width)
    column = (target - first).masked_fill(elsewhere, 0)
    sums = torch.zeros(2, *target.shape, dtype=torch.float64)
    shifted = vocab_parallel_logits.gather(-1, column.unsqueeze(-1)).squeeze(-1) - highest
    sums[1] = shifted.masked_fill(elsewhere, 0.0)
    sums[0] = vocab_parallel_logits.sub_(highest.unsqueeze(-1)).exp_().sum(dim=-1, dtype=torch.float64)
    dist.all_reduce(sums, group=group)
    return (sums[0].log() - sums[1]).float()
