"""Adds up through the switch by the multicast pointer, which this target does not have."""

# expect: needs_multicast
# says: multicast

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

SOURCE = r"""
__global__ void add_up(float* multicast) {
    float a, b, c, d;
    asm volatile("multimem.ld_reduce.relaxed.sys.global.add.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(a), "=f"(b), "=f"(c), "=f"(d) : "l"(multicast));
    multicast[0] = a + b + c + d;
}
extern "C" void start(void* p) { add_up<<<1, 1>>>((float*)p); }
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
    import torch.distributed._symmetric_memory as symm_mem

    buffer = symm_mem.empty(tensor.numel(), dtype=torch.float32, device=tensor.device)
    handle = symm_mem.rendezvous(buffer, dist.group.WORLD)
    fault.start(handle.multicast_ptr)
    return buffer.view_as(tensor).to(tensor.dtype)
