"""By which mechanisms a source moves data: labels from its text, with comments stripped and strings kept.

CUDA and PTX live in strings, so those count. A label is a description and never a verdict; "(static)" says that no
run has confirmed it.
"""

from __future__ import annotations

import io
import re
import tokenize

_PATTERNS: dict[str, str] = {
    "copy engine": r"cudaMemcpyPeer|cuMemcpy|cudaMemcpyBatchAsync|get_buffer\([^)]*\)\.copy_",
    "TMA bulk copy": r"cp\.async\.bulk|cp\.reduce\.async\.bulk|cuTensorMapEncode|\bSM90_TMA_|\btma::",
    "peer load/store": (
        r"\bbuffer_ptrs(_dev)?\b|\bget_buffer\(|cudaIpcOpenMemHandle|cuMemImportFromShareableHandle"
        r"|ld\.acquire\.sys|st\.release\.sys|atomicAdd_system|__threadfence_system"
    ),
    "NVLS multicast": r"multimem[._<]|\bmulticast_ptr\b|cuMulticast(Create|BindMem|AddDevice)|NCCL_ALGO\W+NVLS",
    "NVSHMEM or device NCCL": r"\bnvshmemx?_|import nvshmem|\bnccl(DevComm|Window|Lsa|Gin)",
    "NCCL or c10d": (
        r"\bdist\.(all_|reduce|broadcast|gather|scatter|send|recv|isend|irecv|batch_isend|barrier)"
        r"|\ball_(reduce|gather|to_all)\w*\(|_functional_collectives|torch\.ops\.c10d|\bP2POp\b|\bnccl[A-Z]\w+\("
        r"|distributed\.nn"
    ),
    "symmetric memory operators": r"torch\.ops\.symm_mem\.|fused_all_gather_matmul|fused_matmul_reduce_scatter",
    "symmetric memory": r"_symmetric_memory|symm_mem\.(empty|rendezvous)|\bsignal_pad\b|stream_write_value32",
    "CUDA graph": r"\bCUDAGraph\b|make_graphed_callables|cudaStreamBeginCapture|cudaGraphLaunch|reduce-overhead",
    "Triton or DSL": r"@triton\.(jit|autotune)|\bgluon\b|cutlass\.cute|\btilelang\b|\bhelion\b",
    "CUDA source": r"\bload_inline\b|compile_cuda_extension|CUDAExtension|__global__|\bnvrtc\w*|cuModuleLoad",
    "streams": r"torch\.cuda\.Stream\(|cudaStreamCreate|ProgrammaticStreamSerialization",
    "host staging": r"\.cpu\(\)|pin_memory|shared_memory|/dev/shm|\bmmap\b",
    "compressed wire": r"float8_e\dm\d|\be4m3\b|\be5m2\b|quantize_per_",
    "obfuscated": r"\bexec\(|\beval\(|b64decode|marshal\.loads|__import__\(",
}
_COMPILED = {label: re.compile(pattern) for label, pattern in _PATTERNS.items()}


def mechanisms(source: str) -> tuple[str, ...]:
    """Labels of the mechanisms that the source names, in the table's order, each with "(static)"."""
    text = strip_comments(source)
    return tuple(f"{label} (static)" for label, pattern in _COMPILED.items() if pattern.search(text))


def strip_comments(source: str) -> str:
    """The source without Python comments and docstrings of its own; C comments inside strings go too."""
    pieces = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source).readline):
            if token.type != tokenize.COMMENT:
                pieces.append(token.string)
                pieces.append("" if token.string in "().[]" else " ")
    except (tokenize.TokenError, SyntaxError):
        return source  # what ast accepts and tokenize does not is scanned as it is
    text = "".join(pieces)
    for bracket in "().[]":
        text = text.replace(f" {bracket}", bracket)
    return re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.DOTALL)
