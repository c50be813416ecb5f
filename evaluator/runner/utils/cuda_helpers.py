"""Builds the CUDA part of a submission: ``from utils.cuda_helpers import compile_cuda_extension``."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType


def compile_cuda_extension(
    name: str,
    cuda_src: str,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
) -> ModuleType:
    """Compiles one CUDA C++ translation unit that brings its own PYBIND11_MODULE, and imports it.

    A thin wrapper over ``torch.utils.cpp_extension.load_inline`` with -O3, for the architectures in
    TORCH_CUDA_ARCH_LIST. Raises RuntimeError with the compiler's messages if the build fails.
    """
    # Imported here: it takes half a second, and most submissions have nothing to build.
    from torch.utils.cpp_extension import load_inline

    module: ModuleType = load_inline(  # type: ignore[no-untyped-call]
        name=name,
        cpp_sources="",
        cuda_sources=cuda_src,
        extra_cuda_cflags=["-O3", *(extra_cuda_cflags or ())],
        extra_include_paths=list(extra_include_paths or ()),
        extra_ldflags=list(extra_ldflags or ()),
        with_cuda=True,
    )
    return module
