"""What a file needs that its target does not have, and what errors of CUDA and of compilers mean.

Pure functions of texts. Errors are the candidate's own words, so they choose between codes that all mean "not correct";
nothing here turns a failure into a success.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import re
import sys
from dataclasses import dataclass
from functools import cache

from evaluator.contract import Code
from evaluator.judge import mechanisms
from evaluator.judge.faults import Fault, clip
from evaluator.judge.mechanisms import Scan
from evaluator.targets import Target


@dataclass(frozen=True)
class Meaning:
    """What an error text means: the code, and what to do."""

    code: Code
    hint: str


_CUDA: tuple[tuple[str, Code, str], ...] = (
    (
        r"illegal memory access|cudaErrorIllegalAddress",
        Code.ILLEGAL_MEMORY_ACCESS,
        "A kernel touched memory that is not its own: look at sizes that are no multiple of the tile, at offsets into "
        "peer buffers, and at buffers that were freed while another rank still read them.",
    ),
    (
        r"misaligned address|cudaErrorMisalignedAddress",
        Code.ILLEGAL_MEMORY_ACCESS,
        "A vector load or store went to an address that is no multiple of its width: rows of odd length, or a slice "
        "that does not begin on 16 bytes.",
    ),
    (
        r"device-side assert triggered|cudaErrorAssert",
        Code.RUNTIME_ERROR,
        "An assert in a kernel failed, mostly an index out of range in a gather or scatter.",
    ),
    (
        r"no kernel image is available|cudaErrorNoKernelImageForDevice|invalid device function",
        Code.COMPILE_ERROR,
        "The extension was not built for this GPU: leave the architecture to the TORCH_CUDA_ARCH_LIST of the target.",
    ),
    (
        r"invalid configuration argument|too many resources requested for launch|cudaErrorInvalidConfiguration"
        r"|cudaErrorLaunchOutOfResources",
        Code.RUNTIME_ERROR,
        "A launch asked for more threads, registers or shared memory than the GPU has; more than 48 KiB of shared "
        "memory needs cudaFuncSetAttribute.",
    ),
    (
        r"CUDA error: invalid argument|cudaErrorInvalidValue",
        Code.RUNTIME_ERROR,
        "CUDA refused an argument of a launch or a copy: more than 1024 threads in a block, or a pointer that is null "
        "or of another kind than it should be.",
    ),
    (
        r"invalid device ordinal|cudaErrorInvalidDevice",
        Code.RUNTIME_ERROR,
        "There is no GPU of that number for the ranks of this target: take the device of an input, or "
        "torch.cuda.current_device().",
    ),
    (
        r"CUDA out of memory|cudaErrorMemoryAllocation|CUDA error: out of memory",
        Code.OUT_OF_MEMORY,
        "The GPU has no more memory: look for workspaces that are made anew in every call.",
    ),
)
_BUILD = re.compile(r"Error building extension|nvcc fatal|ptxas (error|fatal)|CompilationError|: fatal error: ")
_MULTICAST = re.compile(
    r"multicast(_ptr)?\b.*(not|null|None|unsupported|disabled)|(not|no) .*multicast|requires multicast"
    r"|multimem.*(not |un)supported",
    re.IGNORECASE,
)
_KITTENS = re.compile(
    r"THUNDERKITTENS_ROOT|kittens\.cuh|pyutils/|parallel_tensor|(thunder|parallel)_?kittens", re.IGNORECASE
)
_NO_GPU = re.compile(
    r"no NVIDIA|not compiled with CUDA|CUDA_HOME|No CUDA|CUDA (driver|GPUs?)|nvcc|\btriton\b"
    r"|cuda[^a-z]*(is )?not available|Torch not compiled|SymmetricMemory does not support device type",
    re.IGNORECASE,
)
_GPU_LABELS = {
    mechanisms.OWN_CUDA,
    mechanisms.TRITON,
    mechanisms.SYMMETRIC,
    mechanisms.SYMMETRIC_OPERATORS,
    mechanisms.GRAPH,
}
_MODULE = re.compile(r"No module named '([\w.]+)'")
_WORTH_NAMING = (
    "torch", "triton", "numpy", "scipy", "einops", "cuda", "cutlass", "cupy", "numba", "nvshmem", "flash_attn",
    "tilelang",
)  # fmt: skip
MOST_KERNELS = 8
_FAILS = {
    Code.WRONG_VALUES,
    Code.IMPRECISE,
    Code.WRONG_STRUCTURE,
    Code.RACE,
    Code.RUNTIME_ERROR,
    Code.ILLEGAL_MEMORY_ACCESS,
    Code.IMPORT_ERROR,
    Code.COMPILE_ERROR,
    Code.DEADLOCK,
    Code.TOO_SLOW,
}


def meaning_of(message: str) -> Meaning | None:
    """What an exception's text means beyond its phase; None if it is no error of CUDA or of a compiler."""
    for pattern, code, hint in _CUDA:
        if re.search(pattern, message):
            return Meaning(code, hint)
    if _BUILD.search(message):
        return Meaning(
            Code.COMPILE_ERROR, "The first error of the compiler is in the message; later ones follow from it."
        )
    return None


def import_sentence(message: str) -> str:
    """What to say of a module that is not there; "" if the message is about something else."""
    found = _MODULE.search(message)
    if found is None:
        return ""
    return (
        f"{found.group(1)} is not installed here. There are: the standard library of Python "
        f"{sys.version_info.major}.{sys.version_info.minor}, {', '.join(installed())}, and utils.cuda_helpers. Nothing "
        "can be downloaded: files must bring the code they need."
    )


@cache
def installed() -> tuple[str, ...]:
    """Packages beyond the standard library that a submission may count on. The sandbox shows this interpreter's."""
    return tuple(name for name in _WORTH_NAMING if importlib.util.find_spec(name) is not None)


def has_multicast(target: Target) -> bool:
    """Whether the GPUs of a target can multicast to each other: they can where each rank has one of its own."""
    return target.device == "cuda" and target.process_group == "nccl" and target.world_size > 1


def reconsidered(fault: Fault, scan: Scan, target: Target) -> Fault:
    """The fault, or one that says what the target lacks: not the file's fault, so never ``wrong_values``.

    An illegal access names the file's kernels: the driver does not tell which of them it was.
    """
    if fault.code not in _FAILS:
        return fault
    said = "\n".join([fault.message, *(state.error for state in fault.ranks)])
    multicast = mechanisms.MULTIMEM in scan.labels or _MULTICAST.search(said)
    if multicast and target.device == "cuda" and not has_multicast(target):
        return _lacking(
            fault,
            Code.NEEDS_MULTICAST,
            "The file uses in-switch multicast (multimem instructions or multicast pointers), and the target "
            f"{target.name} has none.",
            "Evaluate it on a target with one GPU a rank, or take another way where multicast_ptr is 0.",
        )
    if _KITTENS.search(said) and fault.code in (Code.IMPORT_ERROR, Code.COMPILE_ERROR, Code.RUNTIME_ERROR):
        return _lacking(
            fault,
            Code.NEEDS_RUNTIME,
            "The file needs the headers or the runtime of ThunderKittens, which this host does not have.",
            "The host finds them by THUNDERKITTENS_ROOT; docs/operations.md says how to install them.",
        )
    if target.device == "cpu" and scan.labels & _GPU_LABELS and _NO_GPU.search(said):
        return _lacking(
            fault,
            Code.NEEDS_RUNTIME,
            f"The file needs a GPU ({', '.join(sorted(scan.labels & _GPU_LABELS))}), and {target.name} has none.",
            "Evaluate it on a GPU target; files with plain torch.distributed run on this one.",
        )
    kernels = [*scan.cuda_kernels, *scan.triton_kernels]
    if fault.code is Code.ILLEGAL_MEMORY_ACCESS and kernels:
        hint = f"Kernels of the file: {', '.join(kernels[:MOST_KERNELS])}{', …' * (len(kernels) > MOST_KERNELS)}."
        return dataclasses.replace(fault, hints=(*fault.hints, hint))
    return fault


def _lacking(fault: Fault, code: Code, sentence: str, hint: str) -> Fault:
    seen = fault.message if fault.message.endswith((".", "…")) else f"{fault.message}."
    return dataclasses.replace(
        fault,
        code=code,
        message=clip(f"{sentence} What happened: {seen}"),
        hints=(hint, *fault.hints),
        normalised=sentence,
    )


def device_hint(scan: Scan, target: Target) -> str:
    """What to say of a file that numbers its devices itself, where ranks share one; "" for others."""
    if not scan.devices or target.device != "cuda" or target.process_group == "nccl":
        return ""
    lines = ", ".join(map(str, scan.devices[:5]))
    return (
        f"The file names cuda:<number> itself (line {lines}), but all ranks of {target.name} share one GPU: take the "
        "device of an input, or torch.cuda.current_device()."
    )
