"""Jobs with small limits, and finding their processes on the host."""

from __future__ import annotations

from pathlib import Path

from evaluator.sandbox import ResourceLimits, Sandbox, SandboxSpec, python_command
from evaluator.sandbox.policy import MiB

SMALL = ResourceLimits(
    processes=40,
    memory_bytes=200 * MiB,
    shm_bytes=16 * MiB,
    tmp_bytes=16 * MiB,
    output_bytes=4 * MiB,
    output_tail_bytes=4096,
)
SLEEPS = "import time; time.sleep(600)"


def start(program: str, *arguments: str, limits: ResourceLimits = SMALL, fds: tuple[int, ...] = ()) -> Sandbox:
    command = python_command("-c", program, *arguments)
    return Sandbox.start(SandboxSpec(argv=command, limits=limits, pass_fds=fds))


def marked_processes(mark: str) -> list[int]:
    """All processes of the host with ``mark`` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if mark.encode() in line:
                found.append(int(entry.name))
    return found
