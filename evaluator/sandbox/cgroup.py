"""A control group (version 2) of its own for a job, where this host lets us have one.

Without controllers it still counts and stops its members at once; with them the kernel itself enforces memory and
process limits. The folders carry the judge's pid, so that what a killed judge left behind is found and removed.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from pathlib import Path

from evaluator.sandbox.policy import ResourceLimits, SandboxLeftovers

PREFIX = "pkb-sandbox-"
CONTROLLERS = ("memory", "pids")
REMOVE_SECONDS = 2.0
PAUSE_SECONDS = 50e-6

_numbers = itertools.count()


class Cgroup:
    """One control group. ``controllers``: those of memory and pids that enforce the job's limits."""

    def __init__(self, folder: Path, limits: ResourceLimits) -> None:
        self.folder = folder
        available = (folder / "cgroup.controllers").read_text(encoding="ascii").split()
        self.controllers = tuple(name for name in CONTROLLERS if name in available)
        if "pids" in self.controllers:
            self._write("pids.max", str(limits.processes + 2))  # pid 1, and one to see the limit exceeded
        if "memory" in self.controllers:
            # Files in the job's tmpfs are charged here as well.
            self._write("memory.max", str(limits.memory_bytes + limits.shm_bytes + limits.tmp_bytes))
            self._write("memory.oom.group", "1")
            if (folder / "memory.swap.max").exists():  # absent where the kernel does not account for swap
                self._write("memory.swap.max", "0")
        self._freeze = os.open(folder / "cgroup.freeze", os.O_WRONLY | os.O_CLOEXEC)
        self._events = os.open(folder / "cgroup.events", os.O_RDONLY | os.O_CLOEXEC)

    @classmethod
    def create(cls, limits: ResourceLimits) -> Cgroup | None:
        """A new group, or None where none can be made, which is usual for ordinary users and in containers."""
        for parent in _parents():
            if not os.access(parent, os.W_OK):
                continue
            _sweep(parent)
            folder = parent / f"{PREFIX}{os.getpid()}-{next(_numbers)}"
            try:
                _delegate(parent)
                folder.mkdir()
            except OSError:  # read-only, or not ours after all
                continue
            try:
                return cls(folder, limits)
            except OSError:
                folder.rmdir()
        return None

    def add(self, pid: int) -> bool:
        """Move a process in; False where the kernel refuses (it must not leave its present group)."""
        try:
            self._write("cgroup.procs", str(pid))
        except PermissionError:
            return False
        return True

    def _write(self, name: str, value: str) -> None:
        (self.folder / name).write_text(value, encoding="ascii")

    def freeze(self, seconds: float) -> bool:
        """Stop all members; True once none can run."""
        deadline = time.monotonic() + seconds
        os.write(self._freeze, b"1")
        while b"frozen 1" not in os.pread(self._events, 256, 0):
            if time.monotonic() > deadline:
                return False
            time.sleep(PAUSE_SECONDS)
        return True

    def thaw(self) -> None:
        os.write(self._freeze, b"0")

    def out_of_memory(self) -> bool:
        """True if the kernel has killed members because of the group's memory limit."""
        if "memory" not in self.controllers:
            return False
        events = (self.folder / "memory.events").read_text(encoding="ascii").split()
        return int(dict(zip(events[::2], events[1::2], strict=True)).get("oom_kill", "0")) > 0

    def remove(self) -> None:
        """Remove the group, which must be empty. Raises SandboxLeftovers if it is not."""
        for fd in (self._freeze, self._events):
            os.close(fd)
        deadline = time.monotonic() + REMOVE_SECONDS
        while True:
            try:
                self.folder.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError as error:
                if time.monotonic() > deadline:
                    raise SandboxLeftovers(f"the job's control group {self.folder} is not empty") from error
                time.sleep(0.01)


def _parents() -> list[Path]:
    """Groups in which one of ours might be made: the top of the tree, then our own."""
    mounts = []
    for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
        fields, _, rest = line.partition(" - ")
        if rest.split()[0] == "cgroup2":
            mounts.append(Path(fields.split()[4]))
    if not mounts:
        return []
    own = [line[3:] for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines() if line[:3] == "0::"]
    return [mounts[-1], *(mounts[-1] / path.lstrip("/") for path in own if path not in {"", "/"})]


def _delegate(parent: Path) -> None:
    """Pass on the controllers that we use, as far as ``parent`` has them and may (it must hold no process itself)."""
    available = (parent / "cgroup.controllers").read_text(encoding="ascii").split()
    for name in CONTROLLERS:
        if name in available:
            with contextlib.suppress(OSError):
                (parent / "cgroup.subtree_control").write_text(f"+{name}", encoding="ascii")


def _sweep(parent: Path) -> None:
    """Remove empty groups of judges that are no more."""
    for folder in parent.glob(f"{PREFIX}*"):
        judge = folder.name.removeprefix(PREFIX).partition("-")[0]
        if judge.isdigit() and not Path("/proc", judge).exists():
            with contextlib.suppress(OSError):  # a member is still dying, or another judge was faster
                folder.rmdir()
