"""Overlap. Squared distances of this rank's queries to the keys of all ranks: out[:, s*n:(s+1)*n] = |q - k_s|^2.

Every rank shows its keys in symmetric memory. A few blocks pull the keys of the next peer over its pointer on a side
stream, while the matrix product with the keys that are already here fills the other SMs.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

// Copies bytes from a peer's buffer: 16 bytes per thread and step, the rest one by one.
__global__ void pull_kernel(const char* __restrict__ peer, char* __restrict__ here, long bytes) {
    const long first = blockIdx.x * (long)blockDim.x + threadIdx.x, step = gridDim.x * (long)blockDim.x;
    const long packs = bytes / 16;
    for (long i = first; i < packs; i += step)
        reinterpret_cast<uint4*>(here)[i] = reinterpret_cast<const uint4*>(peer)[i];
    for (long i = packs * 16 + first; i < bytes; i += step) here[i] = peer[i];
}

void pull(int64_t peer, torch::Tensor here, int64_t blocks) {
    const long bytes = here.nbytes();
    if (bytes == 0) return;
    pull_kernel<<<blocks, 512, 0, c10::cuda::getCurrentCUDAStream()>>>(
        reinterpret_cast<const char*>(peer), static_cast<char*>(here.data_ptr()), bytes);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("pull", &pull); }
"""

extension = compile_cuda_extension("distances_pull", SOURCE)
BLOCKS = 16  # an eighth of the SMs: enough to keep the link busy, few enough to leave the product its room
_workspaces = {}


def workspace(like: torch.Tensor):
    """Symmetric buffer, its handle, two landing places and a side stream: made once per shape, then used again."""
    key = (tuple(like.shape), like.dtype, like.device)
    if key not in _workspaces:
        shown = symm_mem.empty(like.shape, dtype=like.dtype, device=like.device)
        handle = symm_mem.rendezvous(shown, dist.group.WORLD)
        landing = [torch.empty_like(shown), torch.empty_like(shown)]
        _workspaces[key] = shown, handle, landing, torch.cuda.Stream(like.device)
    return _workspaces[key]


def solution(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    rank, world = dist.get_rank(), dist.get_world_size()
    shown, handle, landing, side = workspace(k)
    main = torch.cuda.current_stream()
    shown.copy_(k)
    handle.barrier(channel=0)  # the keys of all ranks are in place
    n = k.shape[0]
    out = torch.empty(q.shape[0], world * n, dtype=q.dtype, device=q.device)
    q_norm = q.float().square().sum(1, keepdim=True)
    side.wait_stream(main)
    freed = [None, None]  # event after which a landing place may be overwritten
    keys = k
    for hop in range(world):
        source = (rank + hop) % world
        if hop + 1 < world:  # fetch the next peer's keys while these are worked on
            place = (hop + 1) % 2
            with torch.cuda.stream(side):
                if freed[place] is not None:
                    side.wait_event(freed[place])
                extension.pull(handle.buffer_ptrs[(rank + hop + 1) % world], landing[place], BLOCKS)
                arrived = side.record_event()
        products = torch.matmul(q, keys.t()).float()
        block = q_norm + keys.float().square().sum(1) - 2 * products
        out[:, source * n : (source + 1) * n] = block.to(out.dtype)
        freed[hop % 2] = main.record_event()
        if hop + 1 < world:
            main.wait_event(arrived)
            keys = landing[place]
    handle.barrier(channel=1)  # nobody reads our keys any more: the next call may overwrite them
    return out
