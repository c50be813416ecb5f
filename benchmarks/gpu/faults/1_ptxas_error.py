"""Inline PTX that no assembler knows."""

# expect: compile_error
# says: ptxas

from utils.cuda_helpers import compile_cuda_extension

SOURCE = r"""
#include <torch/extension.h>
__global__ void odd(float* p) { asm volatile("frobnicate.sync.u32 %0;" ::"r"(threadIdx.x)); }
void go(torch::Tensor t) { odd<<<1, 32>>>(t.data_ptr<float>()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("go", &go); }
"""
module = compile_cuda_extension("odd_ptx", SOURCE)


def solution(tensor):
    module.go(tensor)
    return tensor
