# expect: wrong_values
# row: C21
# hint: NaN
# runs: nightly
import torch
import torch.distributed as dist


def solution(A_local, B_local):
    """NaN, which a lax comparison takes for anything."""
    return torch.full((A_local.shape[0], B_local.shape[1]), torch.nan)
