"""A launch with more threads than a block may have."""

# expect: runtime_error
# says: invalid argument

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
__global__ void crowd(char* p) { p[0] = 1; }
extern "C" const char* start(void* p) { crowd<<<1, 4096>>>((char*)p); return cudaGetErrorString(cudaGetLastError()); }
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
    fault.start.restype = ctypes.c_char_p
    raise RuntimeError(f"CUDA error: {fault.start(out.data_ptr()).decode()}")
