# expect: correct
# log: the end of what rank \d says
import torch.distributed as dist


def solution(A_local, B_local):
    print("x" * 200_000)
    print("the end of what rank", dist.get_rank(), "says", flush=True)
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
