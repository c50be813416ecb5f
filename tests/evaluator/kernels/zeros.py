# expect: wrong_values
# row: C01
# message: all zeros
import torch


def solution(A_local, B_local):
    return torch.zeros(A_local.shape[0], B_local.shape[1])
