# expect: out_of_memory
import torch

hoard = []


def solution(A_local, B_local):
    while True:
        hoard.append(torch.ones(64 * 1024 * 1024))
