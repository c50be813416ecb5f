"""Rates that a device really reaches: copies of memory, matrix products, copies between ranks. Needs torch alone.

A rate is the best of several repetitions, and with several ranks the slowest rank's, all measured at the same time.
``copied`` counts a byte read and a byte written as two, as vendors count memory bandwidth; links count one direction.

On a CPU every rank of the target runs at once on its own cores; a link is the faster of a ring over gloo and a copy out
of memory that the neighbour shares. On CUDA one process measures all devices, with events between two fences.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import ProcessException, spawn

REPEATS = 7
MiB = 1024**2
CPU_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp64": torch.float64}
CUDA_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
CPU_SIZE, CUDA_SIZE = 1024, 8192
"""Rows and columns of the matrices."""
CPU_BYTES, CUDA_BYTES = 64 * MiB, 1024 * MiB
"""Of each of the two buffers of a copy: several times any cache."""
RING_BYTES = 8 * MiB


@dataclass(frozen=True)
class Rates:
    """Flops per second by dtype, bytes per second of memory (read and written) and of one direction of a link.

    ``link`` 0: there is no other device. ``details``: what else was measured, by name, in units per second.
    """

    flops: dict[str, float]
    memory: float
    link: float
    details: dict[str, float] = field(default_factory=dict)


def best_seconds(action: Callable[[], Any], *, repeats: int = REPEATS) -> float:
    """The fastest of several calls by the host's clock, after one that does not count."""
    action()
    times = []
    for _ in range(repeats):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return min(times)


# CPU: one process a rank.


def cpu_rates(cpus: Sequence[Sequence[int]], threads: int) -> Rates:
    """Rates of one rank while all of them work; ``cpus``: each rank's cores. Raises RuntimeError if a rank fails."""
    world_size = len(cpus)
    with tempfile.TemporaryDirectory() as folder:
        before = os.environ.get("GLOO_SOCKET_IFNAME")
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        try:
            ranks = (world_size, list(map(list, cpus)), threads, folder)
            spawn(_cpu_rank, ranks, nprocs=world_size)  # type: ignore[no-untyped-call]
        except ProcessException as error:
            raise RuntimeError(f"A rank failed while rates were measured: {str(error).strip()[-300:]}") from error
        finally:
            if before is None:
                os.environ.pop("GLOO_SOCKET_IFNAME", None)
        found: dict[str, float] = torch.load(Path(folder) / "rates", weights_only=True)
    flops = {name.removeprefix("matmul "): rate for name, rate in found.items() if name.startswith("matmul ")}
    link = max(found.get("gloo ring", 0.0), found.get("shared memory", 0.0))
    return Rates(flops, found["copy"], link, found)


def _cpu_rank(rank: int, world_size: int, cpus: list[list[int]], threads: int, folder: str) -> None:
    os.sched_setaffinity(0, cpus[rank])
    torch.set_num_threads(threads)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=world_size)
    shared = _shared_buffers(folder, rank, world_size)
    actions = {**_copies(), **_products(), **_links(rank, world_size, shared)}
    slowest = {}
    for name, (amount, action) in actions.items():
        dist.barrier()
        mine = torch.tensor(amount / best_seconds(action), dtype=torch.float64)
        dist.all_reduce(mine, op=dist.ReduceOp.MIN)
        slowest[name] = float(mine)
    if rank == 0:
        torch.save(slowest, Path(folder) / "rates")
    dist.barrier()
    dist.destroy_process_group()


Action = tuple[float, Callable[[], Any]]
"""Units that a call moves or computes, and the call."""


def _copies() -> dict[str, Action]:
    source, target = torch.ones(CPU_BYTES // 4), torch.zeros(CPU_BYTES // 4)
    return {"copy": (2.0 * CPU_BYTES, lambda: target.copy_(source))}


def _products() -> dict[str, Action]:
    actions: dict[str, Action] = {}
    for name, dtype in CPU_DTYPES.items():
        a, b = (torch.randn(CPU_SIZE, CPU_SIZE).to(dtype) for _ in range(2))
        actions[f"matmul {name}"] = (2.0 * CPU_SIZE**3, lambda a=a, b=b: a @ b)  # type: ignore[misc]
    return actions


def _shared_buffers(folder: str, rank: int, world_size: int) -> torch.Tensor:
    """The neighbour's buffer, in memory that both map."""
    mine = torch.from_file(f"{folder}/rank{rank}", shared=True, size=RING_BYTES // 4)
    mine.fill_(float(rank))
    dist.barrier()
    return torch.from_file(f"{folder}/rank{(rank + 1) % world_size}", shared=True, size=RING_BYTES // 4)


def _links(rank: int, world_size: int, neighbour: torch.Tensor) -> dict[str, Action]:
    own, received = torch.ones(RING_BYTES // 4), torch.zeros(RING_BYTES // 4)
    reduced = torch.ones(RING_BYTES // 4)

    def ring() -> None:
        sending = dist.isend(own, (rank + 1) % world_size)
        dist.recv(received, (rank - 1) % world_size)
        assert sending is not None
        sending.wait()

    return {
        "shared memory": (float(RING_BYTES), lambda: received.copy_(neighbour)),
        "gloo ring": (float(RING_BYTES), ring),
        "gloo all-reduce": (float(RING_BYTES), lambda: dist.all_reduce(reduced)),
    }


# CUDA: one process for all devices.


def cuda_rates() -> Rates:
    """Rates of the devices that this process sees: of the slowest of them. Raises RuntimeError without a device."""
    if not torch.cuda.is_available():
        raise RuntimeError("torch sees no CUDA device here.")
    count = torch.cuda.device_count()
    devices = [torch.device("cuda", index) for index in range(count)]
    found: dict[str, list[float]] = {}
    for device in devices:
        for name, (amount, action) in {**_cuda_copies(device), **_cuda_products(device)}.items():
            found.setdefault(name, []).append(amount / _cuda_seconds(device, action))
        torch.cuda.empty_cache()
    for first in devices:
        for second in devices:
            if first != second:
                found.setdefault("peer copy", []).append(_peer_rate(first, second))
    details = {name: min(rates) for name, rates in found.items()}
    flops = {name.removeprefix("matmul "): rate for name, rate in details.items() if name.startswith("matmul ")}
    return Rates(flops, details["copy"], details.get("peer copy", 0.0), details)


def _cuda_seconds(device: torch.device, action: Callable[[], Any]) -> float:
    """The fastest of several calls between two events, after two that do not count."""
    with torch.cuda.device(device):
        for _ in range(2):
            action()
        times = []
        for _ in range(REPEATS):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            torch.cuda.synchronize(device)
            begin.record()
            action()
            end.record()
            torch.cuda.synchronize(device)
            times.append(float(begin.elapsed_time(end)) / 1e3)
    return min(times)


def _cuda_copies(device: torch.device) -> dict[str, Action]:
    source, target = (torch.zeros(CUDA_BYTES, dtype=torch.uint8, device=device) for _ in range(2))
    return {"copy": (2.0 * CUDA_BYTES, lambda: target.copy_(source))}


def _cuda_products(device: torch.device) -> dict[str, Action]:
    """Products of square matrices. fp32 without TF32 and, as a dtype of its own, with it; fp8 where torch has it."""
    work = 2.0 * CUDA_SIZE**3
    actions: dict[str, Action] = {}
    for name, dtype in CUDA_DTYPES.items():
        a, b = (torch.randn(CUDA_SIZE, CUDA_SIZE, device=device, dtype=dtype) for _ in range(2))
        actions[f"matmul {name}"] = (work, lambda a=a, b=b: _product(a, b, tf32=False))  # type: ignore[misc]
        if name == "fp32":
            actions["matmul tf32"] = (work, lambda a=a, b=b: _product(a, b, tf32=True))  # type: ignore[misc]
    with suppress(RuntimeError, AttributeError):  # an older GPU or torch has no fp8
        actions["matmul fp8"] = (work, _fp8_product(device))
    return actions


def _product(a: torch.Tensor, b: torch.Tensor, *, tf32: bool) -> torch.Tensor:
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def _fp8_product(device: torch.device) -> Callable[[], Any]:
    a = torch.randn(CUDA_SIZE, CUDA_SIZE, device=device).to(torch.float8_e4m3fn)
    b = torch.randn(CUDA_SIZE, CUDA_SIZE, device=device).to(torch.float8_e4m3fn).t()  # column by column
    one = torch.ones((), device=device)

    def product() -> torch.Tensor:
        return torch._scaled_mm(a, b, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    product()  # raises here where it cannot run
    return product


def _peer_rate(first: torch.device, second: torch.device) -> float:
    """Bytes per second from one device to another, one direction at a time."""
    source = torch.zeros(CUDA_BYTES // 4, dtype=torch.uint8, device=first)
    target = torch.empty_like(source, device=second)

    def copy() -> None:
        target.copy_(source, non_blocking=True)
        torch.cuda.synchronize(second)

    return source.numel() / _cuda_seconds(first, copy)


def host() -> str:
    """The name of this machine, for the record of a measurement."""
    return socket.gethostname()
