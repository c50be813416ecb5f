"""Fusion. out = clamp(x - mean over ranks of x, -1, 1) + y, in one kernel: show, synchronise, reduce, finish.

Each block shows its slice of x in symmetric memory, meets the same block of the other ranks on signal pads, adds up
what they show in float32 registers and writes the finished result. Sum and mean never go through memory, and no block
waits for more than its own slice.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

template <typename T> struct alignas(16) Pack { T v[16 / sizeof(T)]; };

// Flags are 0 at rest. The sender turns 0 into 1 with release order, the receiver 1 into 0 with acquire order.
__device__ void send(unsigned* flag) {
    unsigned old;
    do asm volatile("atom.release.sys.global.cas.b32 %0, [%1], 0, 1;" : "=r"(old) : "l"(flag) : "memory");
    while (old != 0);
}
__device__ void receive(unsigned* flag) {
    unsigned old;
    do asm volatile("atom.acquire.sys.global.cas.b32 %0, [%1], 1, 0;" : "=r"(old) : "l"(flag) : "memory");
    while (old != 1);
}
// This block meets the same block of all ranks. Before it, writes of the block are gathered by __syncthreads.
__device__ void meet(unsigned* const* pads, int rank, int world) {
    __syncthreads();
    if (threadIdx.x < world) {
        const int peer = threadIdx.x;
        send(pads[peer] + blockIdx.x * world + rank);
        receive(pads[rank] + blockIdx.x * world + peer);
    }
    __syncthreads();
}

template <typename T>
__global__ void centre(const T* x, const T* y, T* out, T* const* shown, unsigned* const* pads,
                       long packs, int rank, int world) {
    constexpr int N = 16 / sizeof(T);
    const long first = blockIdx.x * (long)blockDim.x + threadIdx.x, step = gridDim.x * (long)blockDim.x;
    for (long i = first; i < packs; i += step)
        reinterpret_cast<Pack<T>*>(shown[rank])[i] = reinterpret_cast<const Pack<T>*>(x)[i];
    meet(pads, rank, world);  // everybody's slice is there
    for (long i = first; i < packs; i += step) {
        float sum[N] = {};
        for (int hop = 0; hop < world; ++hop) {  // every rank begins at itself, so that no link is hit by all at once
            const Pack<T> part = reinterpret_cast<const Pack<T>*>(shown[(rank + hop) % world])[i];
            #pragma unroll
            for (int j = 0; j < N; ++j) sum[j] += static_cast<float>(part.v[j]);
        }
        const Pack<T> own = reinterpret_cast<const Pack<T>*>(x)[i], add = reinterpret_cast<const Pack<T>*>(y)[i];
        Pack<T> done;
        #pragma unroll
        for (int j = 0; j < N; ++j) {
            const float centred = static_cast<float>(own.v[j]) - sum[j] / world;
            done.v[j] = static_cast<T>(fminf(fmaxf(centred, -1.f), 1.f) + static_cast<float>(add.v[j]));
        }
        reinterpret_cast<Pack<T>*>(out)[i] = done;
    }
    meet(pads, rank, world);  // everybody has read: the next call may overwrite
}

void launch(torch::Tensor x, torch::Tensor y, torch::Tensor out, int64_t shown, int64_t pads, int64_t rank,
            int64_t world, int64_t blocks) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "centre", [&] {
        centre<scalar_t><<<blocks, 512, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(),
            reinterpret_cast<scalar_t* const*>(shown), reinterpret_cast<unsigned* const*>(pads),
            x.nbytes() / 16, rank, world);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""

extension = compile_cuda_extension("centre_fused", SOURCE)
BLOCKS = 24  # all blocks must be on the device at once, since they wait for each other; 24 * 8 flags fit into a pad
_workspaces = {}


def padded(x: torch.Tensor) -> torch.Tensor:
    """x as a flat tensor of whole, aligned packs of 16 bytes; a copy only where the shape or the address forces one."""
    flat = x.contiguous().view(-1)
    short = -flat.nbytes % 16 // flat.element_size()
    if short or flat.data_ptr() % 16:
        flat = torch.nn.functional.pad(flat, (0, short)).clone()
    return flat


def solution(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    flat_x, flat_y = padded(x), padded(y)
    key = (flat_x.numel(), x.dtype, x.device)
    if key not in _workspaces:
        shown = symm_mem.empty(flat_x.numel(), dtype=x.dtype, device=x.device)
        _workspaces[key] = shown, symm_mem.rendezvous(shown, dist.group.WORLD)
    _, handle = _workspaces[key]
    out = torch.empty_like(flat_x)
    extension.launch(
        flat_x, flat_y, out, handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, handle.rank, handle.world_size, BLOCKS
    )
    return out[: x.numel()].view(x.shape)
