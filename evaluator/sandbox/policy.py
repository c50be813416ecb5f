"""What a job may see and use, as data. Nothing here starts anything; ``launch`` and ``command`` act on it."""

from __future__ import annotations

import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Literal

MiB = 1024**2
GiB = 1024**3

SeccompProfile = Literal["cpu", "cuda"]
ViolationKind = Literal["processes", "memory", "shared memory", "output"]

HOME = "/tmp/home"  # noqa: S108 - inside the sandbox, where /tmp is the job's own
SANDBOX_NAME = "sandbox"

# The whole environment of a job; what the judge adds comes on top. Nothing of the host's environment passes.
BASE_ENVIRONMENT: Mapping[str, str] = {
    "HOME": HOME,
    "USER": SANDBOX_NAME,
    "LOGNAME": SANDBOX_NAME,
    "LANG": "C.UTF-8",
    "TMPDIR": "/tmp",  # noqa: S108
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONSAFEPATH": "1",
    "PYTHONNOUSERSITE": "1",
    "GLOO_SOCKET_IFNAME": "lo",
    "XDG_CACHE_HOME": f"{HOME}/.cache",
    "TORCH_EXTENSIONS_DIR": f"{HOME}/torch_extensions",
    "TORCHINDUCTOR_CACHE_DIR": f"{HOME}/inductor",
    "TRITON_CACHE_DIR": f"{HOME}/triton",
    "CUDA_CACHE_PATH": f"{HOME}/nv",
}


@dataclass(frozen=True)
class Bind:
    """One file or directory of the host shown inside at ``target`` (absolute), read-only unless ``writable``.

    A writable source must grant its access to any uid, because the job runs under one that is picked at the start.
    """

    source: Path
    target: str
    writable: bool = False

    def __post_init__(self) -> None:
        if not PurePosixPath(self.target).is_absolute() or ".." in PurePosixPath(self.target).parts:
            raise ValueError(f"bind target must be an absolute path without '..': {self.target}")
        mode = self.source.stat().st_mode  # raises FileNotFoundError with the path
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
            raise ValueError(f"only regular files and directories can be bound, {self.source} is neither")


def nvidia_devices(indices: Sequence[int]) -> tuple[str, ...]:
    """The device nodes that a job needs for the GPUs with these numbers, and for no other."""
    return (*(f"/dev/nvidia{index}" for index in indices), "/dev/nvidiactl", "/dev/nvidia-uvm")


@dataclass(frozen=True)
class ResourceLimits:
    """Ceilings of one job, all its processes together unless said otherwise; sizes in bytes."""

    processes: int = 512  # processes and threads
    memory_bytes: int = 8 * GiB  # resident, shared pages counted once
    shm_bytes: int = 1 * GiB  # /dev/shm
    tmp_bytes: int = 1 * GiB  # /tmp, HOME and caches
    open_files: int = 1024  # per process
    file_bytes: int = 2 * GiB  # largest single file
    output_bytes: int = 64 * MiB  # printed to stdout and stderr together; more ends the job
    output_tail_bytes: int = 64 * 1024  # how much of the end of the output is kept

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if value <= 0:
                raise ValueError(f"limit {name} must be positive, got {value}")


@dataclass(frozen=True)
class SandboxSpec:
    """One job: what it runs, sees and may use.

    ``argv``: the command, resolved inside; ``python_command`` gives the one for a Python file.
    ``binds``: what it sees beside the runtime (interpreter, torch, system libraries), which is always there read-only.
    ``pass_fds``: open descriptors that keep their numbers (3 and up). A memfd should be sealed against growing.
    ``devices``: device nodes bound with access, such as ``/dev/nvidia0``.
    """

    argv: tuple[str, ...]
    binds: tuple[Bind, ...] = ()
    pass_fds: tuple[int, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    limits: ResourceLimits = field(default_factory=ResourceLimits)
    seccomp_profile: SeccompProfile = "cpu"

    def __post_init__(self) -> None:
        if not self.argv:
            raise ValueError("a sandboxed job needs a command")
        if any(fd < 3 for fd in self.pass_fds):
            raise ValueError(f"descriptors 0 to 2 are the job's own, cannot pass {self.pass_fds}")
        for device in self.devices:
            if not device.startswith("/dev/") or ".." in PurePosixPath(device).parts:
                raise ValueError(f"not a device path: {device}")


@dataclass(frozen=True)
class Violation:
    """A limit that the job broke and was killed for: the number measured and the limit, in the unit of the limit."""

    kind: ViolationKind
    value: int
    limit: int

    @property
    def sentence(self) -> str:
        if self.kind == "processes":
            return f"The job had {self.value} processes and threads; the limit is {self.limit}."
        verb = "printed" if self.kind == "output" else f"used {'' if self.kind == 'memory' else 'shared '}memory:"
        return f"The job {verb} {self.value / MiB:.0f} MiB; the limit is {self.limit / MiB:.0f} MiB."


class SandboxUnavailable(RuntimeError):
    """This host cannot give the isolation that is asked for: what is the matter, and what to do about it."""

    def __init__(self, sentence: str, remedy: str) -> None:
        super().__init__(f"{sentence} {remedy}".strip())
        self.sentence = sentence
        self.remedy = remedy


class SandboxLeftovers(RuntimeError):
    """Processes of a job are still there after it was killed: the host must not take another job."""
