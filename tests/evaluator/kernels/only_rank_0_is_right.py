# expect: wrong_values
# row: C45 C53
# message: Ranks 1, 2, 3 deliver wrong
# primary: 1
# runs: nightly
import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    dist.reduce(C, 0)
    return C if dist.get_rank() == 0 else A_local @ B_local
