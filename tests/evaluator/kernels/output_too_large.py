# expect: wrong_structure
# message: received outputs of more than \d+ bytes
import torch


def solution(A_local, B_local):
    return torch.ones(4096, 4096)
