"""Fusion. out = clamp(x - mean over ranks of x, -1, 1) + y with the sum formed inside the switch.

ThunderKittens' ``multimem`` reads one address of the multicast mapping and gets the sum over all ranks: each rank pulls
S bytes instead of (W - 1) S, and the arithmetic follows in registers.
"""

import os

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>
#include "kittens.cuh"

using namespace kittens;

__global__ void centre(const bf16_2* x, const bf16_2* y, bf16_2* out, bf16_2* everywhere, long pairs, int world) {
    const long step = gridDim.x * (long)blockDim.x;
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < pairs; i += step) {
        bf16_2 sum;
        multimem<bf16_2>::ld_reduce<reduce_op::ADD>(sum, &everywhere[i]);
        const float2 s = __bfloat1622float2(sum), a = __bfloat1622float2(x[i]), b = __bfloat1622float2(y[i]);
        const float u = fminf(fmaxf(a.x - s.x / world, -1.f), 1.f) + b.x;
        const float v = fminf(fmaxf(a.y - s.y / world, -1.f), 1.f) + b.y;
        out[i] = __floats2bfloat162_rn(u, v);
    }
}

void launch(torch::Tensor x, torch::Tensor y, torch::Tensor out, int64_t everywhere, int64_t world) {
    centre<<<132, 512, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const bf16_2*>(x.data_ptr()), reinterpret_cast<const bf16_2*>(y.data_ptr()),
        reinterpret_cast<bf16_2*>(out.data_ptr()), reinterpret_cast<bf16_2*>(everywhere), x.numel() / 2, world);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""

HOPPER = "-DKITTENS_HOPPER", "-DKITTENS_SM90"  # its name in older and in newer versions of ThunderKittens
extension = compile_cuda_extension(
    "centre_kittens",
    SOURCE,
    extra_cuda_cflags=["-std=c++20", *HOPPER, "--expt-relaxed-constexpr", "--expt-extended-lambda"],
    extra_include_paths=[f"{os.environ['THUNDERKITTENS_ROOT']}/include"],
    extra_ldflags=["-lcuda"],
)
_workspaces = {}


def solution(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    odd = x.numel() % 2
    pad = torch.nn.functional.pad
    own, addend = (pad(t.reshape(-1), (0, odd)).contiguous() for t in (x, y))
    key = (own.numel(), x.dtype, x.device)
    if key not in _workspaces:
        shown = symm_mem.empty(own.numel(), dtype=x.dtype, device=x.device)
        _workspaces[key] = shown, symm_mem.rendezvous(shown, dist.group.WORLD)
    shown, handle = _workspaces[key]
    shown.copy_(own)
    handle.barrier(channel=0)  # everybody's x is in place
    out = torch.empty_like(own)
    extension.launch(own, addend, out, handle.multicast_ptr, handle.world_size)
    handle.barrier(channel=1)  # everybody has read: the next call may overwrite
    return out[: x.numel()].view(x.shape)
