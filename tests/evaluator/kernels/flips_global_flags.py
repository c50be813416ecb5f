# expect: correct
# row: C35
# timing_seconds: 6
# runs: nightly
import torch
import torch.distributed as dist

torch.set_default_dtype(torch.float64)
torch.set_flush_denormal(True)
torch.set_float32_matmul_precision("medium")
torch.set_grad_enabled(False)
torch.manual_seed(0)
torch.matmul = None


def solution(A_local, B_local):
    """Right, under flags that would change reference and judge if these shared its process."""
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
