# expect: import_error
# message: No module named 'flashinfer'
# hint: flashinfer is not installed here.*standard library.*utils.cuda_helpers
"""A package that models like to reach for: the feedback says what there is instead."""

import torch
from flashinfer import comm


def solution(A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
    return comm.allreduce(A @ B)
