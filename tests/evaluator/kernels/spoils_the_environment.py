# expect: correct
# row: C59
# timing_seconds: 6
# runs: nightly
import os
import resource

import torch.distributed as dist

if "SPOILT" in os.environ or "LD_PRELOAD" in os.environ:
    raise RuntimeError("the environment of an earlier launch is still there")
os.environ |= {"SPOILT": "1", "LD_PRELOAD": "/tmp/x.so", "OMP_NUM_THREADS": "64", "GLOO_SOCKET_IFNAME": "eth0"}
resource.setrlimit(resource.RLIMIT_CPU, (600, 600))
os.nice(5)


def solution(A_local, B_local):
    """Right; changes environment, limits and priority for whoever comes after."""
    C = A_local @ B_local
    dist.all_reduce(C)
    return C
