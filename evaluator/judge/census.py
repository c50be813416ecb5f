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
    """The source without Python's comments, and with C's comments taken out of its strings."""
    lines = io.StringIO(source).readlines()
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(source).readline))
    except (tokenize.TokenError, SyntaxError):
        return source  # what ast accepts and tokenize does not is scanned as it is
    for token in reversed(tokens):  # from the end, so that earlier places stay where they are
        if token.type == tokenize.COMMENT or token.type in _STRINGS:
            text = "" if token.type == tokenize.COMMENT else _C_COMMENT.sub(" ", token.string)
            _replace(lines, token.start, token.end, text)
    return "".join(lines)


_STRINGS = {tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
_C_COMMENT = re.compile(r"/\*.*?\*/|(?<!:)//[^\n]*", re.DOTALL)


def _replace(lines: list[str], start: tuple[int, int], end: tuple[int, int], text: str) -> None:
    """Replaces what stands between two (1-based line, column) places."""
    first, last = start[0] - 1, end[0] - 1
    lines[first : last + 1] = [lines[first][: start[1]] + text + lines[last][end[1] :]]
