# expect: wrong_structure
# row: C29
# message: received the layout sparse_coo
# runs: nightly
import torch.distributed as dist


def solution(A_local, B_local):
    C = A_local @ B_local
    dist.all_reduce(C)
    return C.to_sparse()
