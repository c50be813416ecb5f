"""Rank 1 writes far behind its tensor."""

# expect: illegal_memory_access
# says: illegal memory access

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch.distributed as dist

SOURCE = r"""
__global__ void far_away(char* p) { p[(1ll << 45) + threadIdx.x] = 1; }
extern "C" void start(void* p) { far_away<<<1, 32>>>((char*)p); }
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
    out = tensor.clone()
    if dist.get_rank() == 1:
        fault.start(out.data_ptr())
    return out
