# expect: race
# message: Right when called one by one, wrong when called back to back\. In call \d+ of a train
# timing_seconds: 60
"""Right whenever it is called once; in a train of calls it hands out the first result again."""

import sys

import torch
import torch.distributed as dist

first = None


def solution(A_local, B_local):
    global first
    if sys._getframe(1).f_locals.get("phase") != "train":
        first = None
    if first is None:
        first = A_local @ B_local
        dist.all_reduce(first)
    return first if sys._getframe(1).f_locals.get("phase") == "train" else first.clone()
