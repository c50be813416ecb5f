# expect: correct
# row: C34
# probes: yes
# runs: nightly
import torch
import torch.distributed as dist

groups = []


def solution(A_local, B_local):
    """A process group of its own, made in the first call."""
    if not groups:
        groups.append(dist.new_group())
    C = A_local @ B_local
    dist.all_reduce(C, group=groups[0])
    return C
