"""What the ranks of an arm run on: the device of each, the process group between them, what the sandbox grants."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Literal

from evaluator import gpus
from evaluator.sandbox import ResourceLimits, nvidia_devices
from evaluator.targets import Target

GiB = 1024**3
CPU_LIMITS = ResourceLimits(memory_bytes=8 * GiB)
CUDA_MEMORY = 64 * GiB
CUDA_LIMITS = ResourceLimits(
    processes=4096,  # the driver, NCCL and nvcc start threads by the dozen in every rank
    memory_bytes=CUDA_MEMORY,  # a CUDA context takes a GiB of the host in every rank
    shm_bytes=8 * GiB,  # NCCL's buffers between the ranks of one host
    tmp_bytes=8 * GiB,
    open_files=65_536,
    file_bytes=8 * GiB,
)
ACCELERATED = {9, 10, 12}
"""Major compute capabilities whose whole instruction set nvcc gives for the architecture with an "a" behind it only."""


@dataclass(frozen=True)
class Hardware:
    """Devices of the ranks. ``numbers``: the GPU of every rank, several on one or each on its own; none on the CPU."""

    device: Literal["cpu", "cuda"] = "cpu"
    numbers: tuple[int, ...] = ()
    process_group: Literal["gloo", "nccl", "emulated"] = "gloo"
    mirrored: bool = False
    """True if tensors lie in a copy of the shared region: on every GPU, and on the CPU where a test wants it."""

    def device_of(self, rank: int) -> str:
        """The device that the rank's tensors are on, as torch writes it."""
        return "cpu" if self.device == "cpu" else f"cuda:{self.numbers[rank]}"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Device nodes that a job needs."""
        return nvidia_devices(sorted(set(self.numbers))) if self.device == "cuda" else ()

    @property
    def limits(self) -> ResourceLimits:
        """What a job may use of the host."""
        if self.device == "cpu":
            return CPU_LIMITS
        half = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
        return replace(CUDA_LIMITS, memory_bytes=min(CUDA_MEMORY, max(half, CPU_LIMITS.memory_bytes)))

    @property
    def environment(self) -> dict[str, str]:
        """Variables of every process of a job. Raises GpusUnavailable."""
        if self.device == "cpu":
            return {}
        shared = len(set(self.numbers)) < len(self.numbers)
        emulation = {
            "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1",
            "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        }
        return {
            "NCCL_SOCKET_IFNAME": "lo",
            "TORCH_CUDA_ARCH_LIST": architectures(gpu.capability for gpu in gpus.read() if gpu.index in self.numbers),
            **toolchain(),
            **(emulation if shared else {}),
            **{name: os.environ[name] for name in SWITCHES if name in os.environ},
        }

    def command(self) -> dict[str, object]:
        """What the runner is told of it."""
        return {
            "device": self.device,
            "numbers": list(self.numbers),
            "process_group": self.process_group,
            "mirrored": self.mirrored,
        }


HOST = Hardware()
SWITCHES = ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST", "NVSHMEM_DISABLE_NVLS")
"""Multicast over NVLink, as the operator has set it for this host; a job must not turn it on against that."""


def architectures(capabilities: Iterable[str]) -> str:
    """TORCH_CUDA_ARCH_LIST for GPUs of these compute capabilities, such as "9.0a"."""
    wanted = sorted(set(capabilities))
    return ";".join(f"{one}a" if int(one.partition(".")[0]) in ACCELERATED else one for one in wanted)


@cache
def toolchain() -> dict[str, str]:
    """Where a job finds the driver's library and nvcc, for which it has no search path of its own."""
    found = {}
    folder = _driver_folder()
    if folder:
        found = {"LD_LIBRARY_PATH": folder, "TRITON_LIBCUDA_PATH": folder}
    compiler = shutil.which("nvcc")
    if compiler:
        home = Path(compiler).resolve().parents[1]
        found["CUDA_HOME"] = str(home)
        found["PATH"] = f"{Path(sys.executable).parent}:{home}/bin:/usr/local/bin:/usr/bin:/bin"
    return found


def _driver_folder() -> str:
    """The folder of the driver's library; "" if there is none."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ""
    maps = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace")
    found = re.search(r"(/\S*)/libcuda\.so", maps)
    return found[1] if found else ""


def hardware_of(target: Target, world_size: int) -> Hardware:
    """The hardware of a job on the target: one GPU a rank, or one for all where the target is emulated."""
    if target.device == "cpu":
        return HOST
    emulated = target.process_group == "emulated"
    numbers = (0,) * world_size if emulated else tuple(range(world_size))
    return Hardware("cuda", numbers, "emulated" if emulated else "nccl", mirrored=True)
