"""Mechanisms are read from what a source does, not from what it mentions."""

import pytest

from evaluator.judge import mechanisms
from evaluator.judge.cuda_text import code_of, kernels_in
from evaluator.judge.mechanisms import needs_multicast, scan

DIST = "import torch\nimport torch.distributed as dist\nimport torch.distributed._symmetric_memory as symm_mem\n"
CUDA = """
from utils.cuda_helpers import compile_cuda_extension
SOURCE = r'''
%s
__global__ void __launch_bounds__(256) pull_rows(float* out) { }
'''
module = compile_cuda_extension("pull", SOURCE)
"""


@pytest.mark.parametrize(
    ("source", "label"),
    [
        (DIST + "dist.all_reduce(x)", mechanisms.DISTRIBUTED),
        ("from torch.distributed import all_gather_into_tensor as g\ng(x, y)", mechanisms.DISTRIBUTED),
        ("import torch\ntorch.ops.c10d.allreduce_(x)", mechanisms.DISTRIBUTED),
        (DIST + "h = symm_mem.rendezvous(x, g)", mechanisms.SYMMETRIC),
        (DIST + "h = symm_mem.rendezvous(x, g)\nx.copy_(h.get_buffer(1, (4,), x.dtype))", mechanisms.COPY_ENGINE),
        (DIST + "p = handle.get_buffer(1, (4,), x.dtype)\np.copy_(x)", mechanisms.COPY_ENGINE),
        (DIST + "p = handle.get_buffer(1, (4,), x.dtype)\nx += p", mechanisms.PEER_ACCESS),
        (DIST + "torch.ops.symm_mem.one_shot_all_reduce(x, 'sum', g)", mechanisms.SYMMETRIC_OPERATORS),
        ("import triton\n@triton.jit\ndef k(x):\n    pass", mechanisms.TRITON),
        ("import triton\nimport triton.language as tl\np.to(tl.pointer_type(tl.float32))", mechanisms.PEER_ACCESS),
        (CUDA % "", mechanisms.OWN_CUDA),
        (CUDA % 'asm volatile("multimem.ld_reduce.global.add.f32 %0, [%1];" : "=f"(v) : "l"(p));', mechanisms.MULTIMEM),
        (CUDA % "void f() { __threadfence_system(); }", mechanisms.PEER_ACCESS),
        (CUDA % 'asm("cp.async.bulk.shared::cluster.global [%0], [%1], 16;"); int* peer_ptr;', mechanisms.TMA),
        (CUDA % 'asm("cp.async.bulk.shared::cluster.global [%0], [%1], 16;");', mechanisms.LOCAL_TMA),
        (CUDA % "void f() { cublasGemmEx(h); }", mechanisms.LIBRARY),
        ("import torch\ny = torch.mm(a, b)", mechanisms.LIBRARY),
        ("y = x.cpu()", mechanisms.HOST_STAGING),
        ("import torch\ng = torch.cuda.CUDAGraph()", mechanisms.GRAPH),
        ("import torch\ny = x.to(torch.float8_e4m3fn)", mechanisms.COMPRESSED),
        ("exec(code)", mechanisms.OBFUSCATED),
    ],
)
def test_a_mechanism_is_found_where_it_is_used(source: str, label: str) -> None:
    assert f"{label} (static)" in scan(source).static_labels()


@pytest.mark.parametrize(
    "source",
    [
        "x = 1  # dist.all_reduce(x), multimem.st",
        '"""Uses multimem and dist.all_reduce."""',
        'def f():\n    """__global__ void k() { multimem.st }"""',
        "print('dist.all_reduce failed, multimem.st')",
        "class Meter:\n    def all_reduce(self):\n        return self.total",
    ],
)
def test_comments_docstrings_messages_and_like_names_count_for_nothing(source: str) -> None:
    assert scan(source).labels == set()


def test_in_cuda_only_code_and_ptx_count() -> None:
    said = CUDA % '// multimem.st\n/* cp.async.bulk */\nvoid f() { printf("use multimem.red here"); }'
    assert scan(said).labels == {mechanisms.OWN_CUDA}
    assert not needs_multicast(said)
    assert needs_multicast(CUDA % 'asm volatile ("multimem.st.f32 [%0], %1;" :: "l"(p), "f"(v));')


def test_strings_in_asm_survive_comments_and_parentheses() -> None:
    code = code_of('x = "a // b"; asm volatile("ld.acquire.sys [%0];" : "=r"(f(x)) /* no */ : "l"(p)); y = "gone";')
    assert "ld.acquire.sys" in code and "gone" not in code and "a // b" not in code and "no" not in code


def test_kernels_and_devices_are_named() -> None:
    found = scan(
        CUDA % "template <typename T> __global__ void first(T* x) {}\n" + 'device = f"cuda:{rank}"\nd = "cuda:1"'
    )
    assert found.cuda_kernels == ["first", "pull_rows"]
    assert len(found.devices) == 2
    assert kernels_in("__global__ __launch_bounds__(128, (2)) void second(int x)") == ["second"]


def test_what_a_run_confirmed_loses_the_mark_and_what_it_showed_is_added() -> None:
    found = scan(DIST + "dist.all_reduce(x)\nh = symm_mem.rendezvous(x, g)")
    labels = mechanisms.merged(found, {mechanisms.DISTRIBUTED, mechanisms.LIBRARY})
    assert labels == ("torch.distributed", "symmetric memory (static)", "library")


def test_what_is_no_python_has_no_labels() -> None:
    assert scan("def solution(:").labels == set()
