"""CUDA source with a mistake in it."""

# expect: compile_error
# says: not_declared

from utils.cuda_helpers import compile_cuda_extension

SOURCE = r"""
#include <torch/extension.h>
__global__ void scale(float* p) { p[threadIdx.x] *= not_declared; }
void go(torch::Tensor t) { scale<<<1, 32>>>(t.data_ptr<float>()); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("go", &go); }
"""
module = compile_cuda_extension("mistaken", SOURCE)


def solution(tensor):
    module.go(tensor)
    return tensor
