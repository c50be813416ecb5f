# expect: wrong_structure
# row: C53
# message: Rank 3: output: expected a tensor.*, received None
import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    dist.all_reduce(C)
    return None if dist.get_rank() == 3 else C
