"""A vector store to an address that is no multiple of its width."""

# expect: illegal_memory_access
# says: misaligned address

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
__global__ void askew(char* p) { *(int4*)(p + 2) = make_int4(0, 0, 0, 0); }
extern "C" void start(void* p) { askew<<<1, 1>>>((char*)p); }
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
    fault.start(out.data_ptr())
    return out
