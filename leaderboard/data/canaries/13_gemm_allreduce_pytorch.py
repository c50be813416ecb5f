"""Canary: the same work as the reference of problem 13, so its ratio is 1 on a host that measures well."""

import torch
import torch.distributed as dist


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    product = A_local.new_empty((A_local.shape[0], B_local.shape[1]))
    torch.mm(A_local, B_local, out=product)
    dist.all_reduce(product)
    return product
