"""Rank 1 waits on the device for a flag that nobody sets."""

# expect: deadlock
# says: rank 1

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

SOURCE = r"""
__global__ void wait_for_ever(volatile int* flag) { while (*flag == 0) {} }
extern "C" void start(void* flag) { wait_for_ever<<<1, 1>>>((volatile int*)flag); }
"""

FOLDER = tempfile.mkdtemp()
Path(FOLDER, "fault.cu").write_text(SOURCE)
subprocess.run(
    ["nvcc", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC", "-o", f"{FOLDER}/fault.so", f"{FOLDER}/fault.cu"],
    check=True,
)
fault = ctypes.CDLL(f"{FOLDER}/fault.so")
fault.start.argtypes = [ctypes.c_void_p]


def solution(tensor):
    flag = torch.zeros(1, dtype=torch.int32, device=tensor.device)
    if dist.get_rank() == 1:
        fault.start(flag.data_ptr())
        torch.cuda.synchronize()
    out = tensor.clone()
    dist.all_reduce(out)
    return out
