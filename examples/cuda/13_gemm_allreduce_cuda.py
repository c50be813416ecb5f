"""GEMM + all-reduce: the product goes straight into symmetric memory, and one kernel adds up all ranks' products.

The library's GEMM writes where the peers can read, so nothing is copied before the exchange. Each block meets the same
block of the other ranks, which is enough: a kernel starts when the product on its stream is finished.
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
__device__ void meet(unsigned* const* pads, int rank, int world) {
    __syncthreads();
    if (threadIdx.x < world) {
        send(pads[threadIdx.x] + blockIdx.x * world + rank);
        receive(pads[rank] + blockIdx.x * world + threadIdx.x);
    }
    __syncthreads();
}

template <typename T>
__global__ void add_up(T* out, T* const* shown, unsigned* const* pads, long packs, int rank, int world) {
    constexpr int N = 16 / sizeof(T);
    meet(pads, rank, world);  // the products of all ranks are finished
    const long first = blockIdx.x * (long)blockDim.x + threadIdx.x, step = gridDim.x * (long)blockDim.x;
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
    meet(pads, rank, world);  // everybody has read: the next product may overwrite
}

void launch(torch::Tensor out, int64_t shown, int64_t pads, int64_t rank, int64_t world, int64_t blocks) {
    AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, out.scalar_type(), "add_up", [&] {
        add_up<scalar_t><<<blocks, 512, 0, c10::cuda::getCurrentCUDAStream()>>>(
            out.data_ptr<scalar_t>(), reinterpret_cast<scalar_t* const*>(shown),
            reinterpret_cast<unsigned* const*>(pads), out.nbytes() / 16, rank, world);
    });
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""

extension = compile_cuda_extension("example_gemm_all_reduce", SOURCE)
BLOCKS = 24  # all must be on the device at once, since they wait for each other; 24 * 8 flags fit into a signal pad
_workspaces = {}


def workspace(numel: int, like: torch.Tensor):
    """Symmetric buffer of whole packs of 16 bytes and its handle: made once per length and dtype."""
    per_pack = 16 // like.element_size()
    key = (-(-numel // per_pack) * per_pack, like.dtype, like.device)
    if key not in _workspaces:
        buffer = symm_mem.empty(key[0], dtype=like.dtype, device=like.device).zero_()
        _workspaces[key] = buffer, symm_mem.rendezvous(buffer, dist.group.WORLD)
    return _workspaces[key]


def solution(A_local: torch.Tensor, B_local: torch.Tensor) -> torch.Tensor:
    rows, columns = A_local.shape[0], B_local.shape[1]
    shown, handle = workspace(rows * columns, A_local)
    torch.matmul(A_local, B_local, out=shown[: rows * columns].view(rows, columns))
    out = torch.empty_like(shown)
    extension.launch(out, handle.buffer_ptrs_dev, handle.signal_pad_ptrs_dev, handle.rank, handle.world_size, BLOCKS)
    return out[: rows * columns].view(rows, columns)
