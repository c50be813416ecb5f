"""The census: from what a profiler saw on every rank to shares of time by origin, counts, overlap and mechanisms.

Pure functions of records (``observations``). They come from the sandbox, so they describe and never decide.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import get_args

from evaluator.contract import Census, CensusEntry, Origin, OriginShare
from evaluator.judge import mechanisms
from evaluator.judge.mechanisms import Scan
from evaluator.judge.observations import Event, Observation
from evaluator.judge.spans import Span, difference, intersection, length, union

MAX_ENTRIES = 15
ORIGINS: tuple[Origin, ...] = get_args(Origin)
COMPUTE: tuple[Origin, ...] = ("own", "library", "framework", "copy")
DEVICE_KINDS = ("kernel", "copy", "set")

# Operations on a CPU. Collectives show twice: as the call that starts them and as the work on the backend's thread.
_COLLECTIVE = re.compile(r"^(gloo|nccl|mpi|ucc):|^(c10d|_?c10d_functional|symm_mem)::|^record_param_comms$")
_BACKEND_WORK = re.compile(r"^(gloo|nccl|mpi|ucc):")
_LIBRARY_OPERATION = re.compile(
    r"^aten::(\w*matmul|\w*mm|\w*bmm|addm?mv?|mv|dot|vdot|inner|linear|einsum|tensordot|bilinear|\w*convolution\w*|conv\w+"
    r"|\w*scaled_dot_product\w*|\w*flash_attention\w*|\w*efficient_attention\w*|linalg_\w+|_?fft_\w+|\w*mkldnn\w*"
    r"|_scaled_mm|_addmm_activation)$|^(mkldnn|onednn)::"
)
_FRAMEWORK_OPERATION = re.compile(
    r"^(aten|prims|prim|torch|torchvision|quantized|sparse|profiler|autograd\w*|torch::autograd\w*|Optimizer\w*|inductor)(::|\b)"
    r"|Backward\d*$|^Torch-Compiled|^CompiledFunction|^enumerate\("
)
# Kernels on a GPU.
_COLLECTIVE_KERNEL = re.compile(
    r"nccl(Dev)?Kernel|^nccl|\bnvshmem|(one|two)_shot_\w*(all_)?reduce|multimem_\w*(all_)?(reduce|gather)|\bsymm_mem"
    r"|c10d::symmetric_memory|\b(barrier|put_signal|wait_signal)_kernel"
)
_LIBRARY_KERNEL = re.compile(
    r"cublas|cutlass|nvjet|cudnn|xmma|_gemm|gemm_|gemv|splitKreduce|cusparse|cufft|flash_(fwd|bwd|attn)|\bfmha|^sm\d+_"
    r"|^(ampere|volta|turing|hopper|maxwell)_",
    re.IGNORECASE,
)
_FRAMEWORK_KERNEL = re.compile(
    r"\bat::|\bc10::|at_cuda|\btriton_(poi|red|per|tem|for|mm|bmm)_|\bat_cub|\bcub::|\bthrust::"
)
_PEER_COPY = re.compile(r"PtoP|Peer")


@dataclass
class Timeline:
    """One rank's calls: their windows, and for each origin the time in which something of it ran."""

    window: list[Span] = field(default_factory=list)
    by_origin: dict[Origin, list[Span]] = field(default_factory=dict)
    counted: list[tuple[str, Origin, int]] = field(default_factory=list)
    """Kernels or outermost operations, in the order of their start: name, origin, duration."""
    on_device: bool = False

    @property
    def compute(self) -> list[Span]:
        return union(span for origin in COMPUTE for span in self.by_origin.get(origin, ()))

    @property
    def communication(self) -> list[Span]:
        return self.by_origin.get("communication", [])

    @property
    def gap(self) -> list[Span]:
        """Time in calls in which nothing was seen to run."""
        return difference(self.window, union([*self.compute, *self.communication]))


def timeline(observation: Observation, scan: Scan) -> Timeline:
    """Sorts what one rank recorded by origin. What lies outside of calls is left out."""
    line = Timeline(window=union((event.start, event.end) for event in observation.calls))
    line.on_device = any(event.kind in DEVICE_KINDS for event in observation.events)
    spans: dict[Origin, list[Span]] = defaultdict(list)
    if line.on_device:
        for event in observation.events:
            if event.kind in DEVICE_KINDS and _inside(event, line.window):
                origin = origin_of_kernel(event, scan)
                spans[origin].append((event.start, event.end))
                line.counted.append((event.name, origin, event.duration))
    else:
        for event, outermost, origin in _operations(observation, line.window):
            spans[origin].append((event.start, event.end))
            if outermost and not _BACKEND_WORK.match(event.name):
                line.counted.append((event.name, origin, event.duration))
    line.by_origin = {origin: intersection(union(found), line.window) for origin, found in spans.items()}
    if not line.on_device and "library" in line.by_origin and "framework" in line.by_origin:
        # matmul holds mm: the outer operation is torch's, the time is the library's.
        line.by_origin["framework"] = difference(line.by_origin["framework"], line.by_origin["library"])
    return line


def _inside(event: Event, windows: list[Span]) -> bool:
    return any(start <= event.start < end for start, end in windows)


def _operations(observation: Observation, windows: list[Span]) -> list[tuple[Event, bool, Origin]]:
    """Operations on the CPU with their origin, and whether none on the same thread holds them.

    What runs inside of a collective is part of it, and a library's operation stays one whatever it calls.
    """
    found: list[tuple[Event, bool, Origin]] = []
    open_on: dict[int, list[tuple[Event, Origin]]] = defaultdict(list)
    for event in observation.events:
        collective = bool(_COLLECTIVE.match(event.name))
        if (event.kind != "cpu_op" and not (event.kind == "annotation" and collective)) or not _inside(event, windows):
            continue
        stack = open_on[event.track]
        while stack and stack[-1][0].end <= event.start:
            stack.pop()
        outer = stack[-1][1] if stack else None
        origin = outer if outer in ("communication", "library", "own") else origin_of_operation(event.name)
        if outer != "communication":
            found.append((event, not stack, origin))
        stack.append((event, origin))
    return found


def origin_of_operation(name: str) -> Origin:
    """Whose work an operation of the CPU is, by its name. One in a namespace of its own is the submission's."""
    if _COLLECTIVE.match(name):
        return "communication"
    if _LIBRARY_OPERATION.match(name):
        return "library"
    if _FRAMEWORK_OPERATION.search(name) or "::" not in name:
        return "framework"
    return "own"


def origin_of_kernel(event: Event, scan: Scan) -> Origin:
    """Whose work a kernel or copy on a GPU is: the names in the source first, then those that are known."""
    if event.kind == "copy":
        return "communication" if _PEER_COPY.search(event.name) else "copy"
    if event.kind == "set":
        return "framework"
    called = event.name.partition("(")[0]
    if any(re.search(rf"\b{re.escape(name)}\b", called) for name in (*scan.cuda_kernels, *scan.triton_kernels)):
        return "own"
    if _COLLECTIVE_KERNEL.search(called):
        return "communication"
    if _FRAMEWORK_KERNEL.search(called):
        return "framework"
    if _LIBRARY_KERNEL.search(called):
        return "library"
    return "own"


def census_of(observations: Sequence[Observation], scan: Scan) -> Census | None:
    """The census over all ranks; None if no call was recorded."""
    lines = [timeline(observation, scan) for observation in observations]
    calls = min((len(o.calls) for o in observations), default=0)
    total = sum(length(line.window) for line in lines)
    if calls == 0 or total == 0:
        return None
    per_call = 1 / sum(len(o.calls) for o in observations)
    shares = []
    for origin in ORIGINS:
        used = sum(length(line.gap if origin == "gap" else line.by_origin.get(origin, [])) for line in lines)
        if used:
            shares.append(OriginShare(origin=origin, seconds=used * per_call / 1e9, share=min(1.0, used / total)))
    counted = [entry for line in lines for entry in line.counted]
    return Census(
        unit="kernels" if any(line.on_device for line in lines) else "operations",
        calls=calls,
        call_seconds=total * per_call / 1e9,
        per_call=len(counted) * per_call,
        origins=tuple(sorted(shares, key=lambda share: -share.share)),
        entries=_entries(counted, per_call),
        overlap=overlap_of(lines),
        dropped=sum(observation.dropped for observation in observations),
    )


def overlap_of(lines: Sequence[Timeline]) -> float | None:
    """(T_compute + T_communication - T_together) / min of the two, over all ranks; None where one of them is zero."""
    compute = sum(length(line.compute) for line in lines)
    communication = sum(length(line.communication) for line in lines)
    if not compute or not communication:
        return None
    both = sum(length(intersection(line.compute, line.communication)) for line in lines)
    return min(1.0, both / min(compute, communication))


def _entries(counted: list[tuple[str, Origin, int]], per_call: float) -> tuple[CensusEntry, ...]:
    totals: dict[tuple[str, Origin], list[int]] = defaultdict(lambda: [0, 0])
    for name, origin, duration in counted:
        totals[name, origin][0] += 1
        totals[name, origin][1] += duration
    longest = sorted(totals.items(), key=lambda item: -item[1][1])[:MAX_ENTRIES]
    return tuple(
        CensusEntry(name=name, origin=origin, per_call=count * per_call, seconds=duration * per_call / 1e9)
        for (name, origin), (count, duration) in longest
    )


def confirmed(observations: Sequence[Observation], scan: Scan) -> set[str]:
    """Labels of mechanisms (see ``mechanisms``) that the profiler saw at work."""
    labels = set()
    for observation in observations:
        for name, origin, _ in timeline(observation, scan).counted:
            labels |= _labels_of(name, origin, scan)
    return labels


def _labels_of(name: str, origin: Origin, scan: Scan) -> set[str]:
    called = name.partition("(")[0]
    if origin == "library":
        return {mechanisms.LIBRARY}
    if origin == "communication":
        if _PEER_COPY.search(name):
            return {mechanisms.COPY_ENGINE}
        if "nvshmem" in called:
            return {mechanisms.NVSHMEM}
        if re.search(r"symm_mem|_shot_|multimem|symmetric_memory", called):
            return {mechanisms.SYMMETRIC_OPERATORS} | ({mechanisms.MULTIMEM} if "multimem" in called else set())
        return {mechanisms.DISTRIBUTED}
    if origin == "own":
        triton = any(re.search(rf"\b{re.escape(kernel)}\b", called) for kernel in scan.triton_kernels)
        return {mechanisms.TRITON if triton else mechanisms.OWN_CUDA} if _is_kernel(called, scan) or triton else set()
    return set()


def _is_kernel(called: str, scan: Scan) -> bool:
    return any(re.search(rf"\b{re.escape(kernel)}\b", called) for kernel in scan.cuda_kernels)
