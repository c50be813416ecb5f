# expect: wrong_structure
# row: C12
# problem: 1
# message: lies in the memory of the input
import torch.distributed as dist


def solution(tensor):
    dist.all_reduce(tensor)
    return tensor
