"""MoE dispatch: tokens are permuted straight into symmetric memory and every rank pulls the blocks meant for it.

Where its block begins in a peer's rows a rank cannot know; so every rank shows the starts of its blocks beside the
rows, and the kernel reads them over the pointer. Nobody sends sizes through the host.
"""

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
from utils.cuda_helpers import compile_cuda_extension

SOURCE = r"""
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

// Block row s of the grid copies what source s has for this rank. Rows are moved as words of 2 bytes or of 16.
template <typename Word>
__global__ void pull(Word* received, Word* const* rows, const long* const* starts, const long* places, long width,
                     int rank) {
    const int s = blockIdx.y;
    const long count = (places[s + 1] - places[s]) * width;
    const Word* from = rows[s] + starts[s][rank] * width;
    Word* to = received + places[s] * width;
    for (long i = blockIdx.x * (long)blockDim.x + threadIdx.x; i < count; i += gridDim.x * (long)blockDim.x)
        to[i] = from[i];
}

// ``places``: row of ``received`` at which each source's block begins, and the end.
void launch(torch::Tensor received, int64_t rows, int64_t starts, torch::Tensor places, int64_t rank) {
    if (received.numel() == 0) return;
    const long bytes = received.size(1) * received.element_size();
    const dim3 grid(64, places.numel() - 1);
    auto stream = c10::cuda::getCurrentCUDAStream();
    auto table = reinterpret_cast<const long* const*>(starts);
    if (bytes % 16 == 0)
        pull<uint4><<<grid, 256, 0, stream>>>(static_cast<uint4*>(received.data_ptr()),
            reinterpret_cast<uint4* const*>(rows), table, places.data_ptr<long>(), bytes / 16, rank);
    else
        pull<unsigned short><<<grid, 256, 0, stream>>>(static_cast<unsigned short*>(received.data_ptr()),
            reinterpret_cast<unsigned short* const*>(rows), table, places.data_ptr<long>(), bytes / 2, rank);
    C10_CUDA_KERNEL_LAUNCH_CHECK();
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""

extension = compile_cuda_extension("example_moe_dispatch", SOURCE)
_workspaces = {}


def workspace(capacity: int, width: int, like: torch.Tensor, group: dist.ProcessGroup):
    """Symmetric buffers for rows and for the starts of blocks, each with its handle: made once per shape and group."""
    key = (capacity, width, like.dtype, like.device, group.group_name)
    if key not in _workspaces:
        rows = symm_mem.empty(capacity, width, dtype=like.dtype, device=like.device)
        starts = symm_mem.empty(dist.get_world_size(group), dtype=torch.int64, device=like.device)
        _workspaces[key] = rows, symm_mem.rendezvous(rows, group), starts, symm_mem.rendezvous(starts, group)
    return _workspaces[key]


def as_tensor(sizes: list[int] | torch.Tensor, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(sizes, dtype=torch.int64).to(device)


def transpose_chunks(rows: torch.Tensor, sizes: list[list[int]]) -> torch.Tensor:
    """Rows in chunks of sizes[source][expert], brought into the order of experts."""
    chunks = torch.split(rows, [size for inner in sizes for size in inner])
    width = len(sizes[0])
    return torch.cat([chunk for expert in range(width) for chunk in chunks[expert::width]])


def solution(
    hidden_states: torch.Tensor,
    expert_mask: torch.Tensor,
    num_experts: int,
    input_splits: list[int] | torch.Tensor,
    output_splits: list[int] | torch.Tensor,
    num_global_tokens_per_local_expert: torch.Tensor,
    group: dist.ProcessGroup | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Size]:
    group = dist.group.WORLD if group is None else group
    hidden = hidden_states.reshape(-1, hidden_states.shape[-1])
    routing_map = expert_mask.sum(dim=1)
    _, permutation = routing_map.nonzero(as_tuple=True)
    capacity = expert_mask.shape[1] * hidden.shape[0]  # no more than one row per pick, the same on all ranks
    rows, row_handle, starts, start_handle = workspace(capacity, hidden.shape[1], hidden, group)
    device = hidden.device
    torch.index_select(hidden, 0, permutation, out=rows[: len(permutation)])
    sent = as_tensor(input_splits, device)
    starts.copy_(sent.cumsum(0) - sent)
    row_handle.barrier(channel=0)  # rows and starts of all ranks are there
    received_sizes = as_tensor(output_splits, device)
    places = torch.nn.functional.pad(received_sizes.cumsum(0), (1, 0))
    received = hidden.new_empty((int(places[-1]), hidden.shape[1]))
    extension.launch(received, row_handle.buffer_ptrs_dev, start_handle.buffer_ptrs_dev, places, row_handle.rank)
    row_handle.barrier(channel=1)  # everybody has read: the next call may overwrite
    sizes = num_global_tokens_per_local_expert.to(torch.int64).tolist()
    return transpose_chunks(received, sizes), routing_map, permutation, hidden.shape
