# expect: wrong_values
# row: C03 C11
# runs: nightly
import torch.distributed as dist


def solution(A_local, B_local):
    """Right without communication if all ranks have the same inputs."""
    return A_local @ B_local * dist.get_world_size()
