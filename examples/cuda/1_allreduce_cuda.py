"""All-reduce in one kernel: show the own tensor, meet, add up what all ranks show.

One shot: every rank reads every peer's tensor once and adds in float32, in the order of the ranks, so that all ranks
get the same bits. Each block waits for the same block of the other ranks only, not for whole tensors.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

template <typename T> struct alignas(16) Pack { T v[16 / sizeof(T)]; };

// A flag is 0 at rest. The sender turns 0 into 1 with release order, the receiver 1 into 0 with acquire order.
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
// This block meets the same block of all ranks.
__device__ void meet(unsigned* const* pads, int rank, int world) {
    __syncthreads();
    if (threadIdx.x < world) {
        send(pads[threadIdx.x] + blockIdx.x * world + rank);
        receive(pads[rank] + blockIdx.x * world + threadIdx.x);
    }
    __syncthreads();
}

template <typename T>
__global__ void all_reduce(const T* x, T* out, T* const* shown, unsigned* const* pads, long packs, int rank,
                           int world) {
    constexpr int N = 16 / sizeof(T);
    const long first = blockIdx.x * (long)blockDim.x + threadIdx.x, step = gridDim.x * (long)blockDim.x;
    for (long i = first; i < packs; i += step)
        reinterpret_cast<Pack<T>*>(shown[rank])[i] = reinterpret_cast<const Pack<T>*>(x)[i];
    meet(pads, rank, world);  // the slice of this block is there on every rank
    for (long i = first; i < packs; i += step) {
        float sum[N] = {};
        for (int q = 0; q < world; ++q) {
            const Pack<T> part = reinterpret_cast<const Pack<T>*>(shown[q])[i];
            #pragma unroll
            for (int j = 0; j < N; ++j) sum[j] += static_cast<float>(part.v[j]);
        }
        Pack<T> done;
        #pragma unroll
        for (int j = 0; j < N; ++j) done.v[j] = static_cast<T>(sum[j]);
        reinterpret_cast<Pack<T>*>(out)[i] = done;
    }
    meet(pads, rank, world);  // everybody has read this slice: the next call may overwrite it
}

void launch(torch::Tensor x, torch::Tensor out, int64_t shown, int64_t pads, int64_t rank, int64_t world,
            int64_t blocks) {
    if (x.numel() == 0) return;
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "all_reduce", [&] {
        all_reduce<scalar_t><<<blocks, 512, 0, c10::cuda::getCurrentCUDAStream()>>>(
            x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), reinterpret_cast<scalar_t* const*>(shown),
            reinterpret_cast<unsigned* const*>(pads), x.nbytes() / 16, rank, world);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""

extension = compile_cuda_extension("example_all_reduce", SOURCE)
BLOCKS = 24  # all must be on the device at once, since they wait for each other; 24 * 8 flags fit into a signal pad
_workspaces = {}


def whole_packs(x: torch.Tensor) -> torch.Tensor:
    """x flat, padded to whole packs of 16 aligned bytes; a copy only where length or address force one."""
    flat = x.contiguous().view(-1)
    short = -flat.nbytes % 16 // flat.element_size()
    return torch.nn.functional.pad(flat, (0, short)).clone() if short or flat.data_ptr() % 16 else flat


def workspace(numel: int, like: torch.Tensor):
    """Handle of a symmetric buffer: made once per length and dtype, on every rank in the same call."""
    key = (numel, like.dtype, like.device)
    if key not in _workspaces:
        buffer = symm_mem.empty(numel, dtype=like.dtype, device=like.device)
        _workspaces[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    return _workspaces[key][1]


def solution(tensor: torch.Tensor) -> torch.Tensor:
    flat = whole_packs(tensor)
    handle = workspace(flat.numel(), flat)
    out = torch.empty_like(flat)
    extension.launch(
        flat, out, handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, handle.rank, handle.world_size, BLOCKS
    )
    return out[: tensor.numel()].view(tensor.shape)
