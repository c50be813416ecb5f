# expect: wrong_values
# row: C34
# message: only this rank's own share
# runs: nightly
import torch.distributed as dist

for name in ("all_reduce", "barrier", "all_gather", "broadcast"):
    setattr(dist, name, lambda *arguments, **more: None)


def solution(A_local, B_local):
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
