"""The processes of one job, seen through the sandbox's own /proc: exactly its members, whatever they do.

A descriptor of that /proc is handed out by the sandbox's first process before the job starts. Its entries are the pid
namespace's members and also serve as handles for signals, so nothing here needs a scan of the host, a cgroup or the
right to trace. Pid 1 is our own reaper and no member.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

from evaluator.sandbox.cgroup import Cgroup
from evaluator.sandbox.policy import SandboxLeftovers

PAGE = os.sysconf("SC_PAGE_SIZE")
TICK = os.sysconf("SC_CLK_TCK")
# Fields of /proc/<pid>/status and of smaps_rollup that make up a process's memory, in kilobytes.
RESIDENT = ("RssAnon", "RssShmem", "VmSwap", "HugetlbPages")
PROPORTIONAL = ("Pss_Anon", "Pss_Shmem", "SwapPss", "Private_Hugetlb", "Shared_Hugetlb")
FREEZE_SECONDS = 2.0
ENDED = frozenset({b"Z", b"X"})
STANDSTILL = ENDED | {b"T", b"t"}  # stopped, stopped by a tracer
WAITING = frozenset({b"D"})  # uninterruptible
WAITING_SECONDS = 0.02
PAUSE_SECONDS = 50e-6


class FreezeFailed(SandboxLeftovers):
    """Some process of the job could not be brought to a standstill."""


@dataclass(frozen=True)
class Usage:
    """What the job uses at one moment: processes with their threads, bytes that may count shared pages twice."""

    tasks: int
    memory_upper_bound: int


class JobProcesses:
    """Operations on all processes inside a sandbox.

    ``proc``: descriptor of its /proc, owned from now on; ``pid1``: host pid of its pid 1; ``cgroup``: the group that
    holds the job, if there is one: it stops all its members in one step.
    """

    def __init__(self, proc: int, pid1: int, cgroup: Cgroup | None = None) -> None:
        self._proc = proc
        self.pid1 = pid1
        self.cgroup = cgroup

    def close(self) -> None:
        os.close(self._proc)

    def inner_pids(self) -> list[str]:
        """Pids as seen inside, without pid 1."""
        try:
            return [name for name in os.listdir(self._proc) if name.isdigit() and name != "1"]  # noqa: PTH208 - by descriptor
        except FileNotFoundError:  # the namespace is gone
            return []

    def _read(self, path: str) -> bytes:
        """Content of a file of the inner /proc; empty if its process is gone meanwhile."""
        try:
            fd = os.open(path, os.O_RDONLY, dir_fd=self._proc)
        except (FileNotFoundError, ProcessLookupError):
            return b""
        try:
            return os.read(fd, 8192)
        except ProcessLookupError:
            return b""
        finally:
            os.close(fd)

    def _signal(self, pid: str, number: signal.Signals) -> None:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # gone meanwhile
            fd = os.open(pid, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._proc)
            try:
                signal.pidfd_send_signal(fd, number)
            finally:
                os.close(fd)

    def _threads(self, pid: str) -> list[str]:
        try:
            fd = os.open(f"{pid}/task", os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._proc)
        except (FileNotFoundError, ProcessLookupError):
            return []
        try:
            return os.listdir(fd)  # noqa: PTH208 - by descriptor
        except (FileNotFoundError, ProcessLookupError):
            return []
        finally:
            os.close(fd)

    def freeze(self) -> None:
        """Stop every member; on return none can run until ``thaw``. Raises FreezeFailed after two seconds."""
        if self.cgroup is not None:
            if not self.cgroup.freeze(FREEZE_SECONDS):
                raise FreezeFailed(f"processes of the job still ran {FREEZE_SECONDS:g} s after the freeze")
            return
        begin = time.monotonic()
        stopped: set[str] = set()
        before: tuple[list[str], set[str]] = ([], set())
        while True:
            members = self.inner_pids()
            for pid in members:
                if pid not in stopped:
                    self._signal(pid, signal.SIGSTOP)
            # A thread in an uninterruptible wait that lasts is the parent of a stopped vfork child, or in a driver;
            # the pending stop comes before its own next instruction.
            still = STANDSTILL if time.monotonic() - begin < WAITING_SECONDS else STANDSTILL | WAITING
            moving, ended = self._survey(members, still)
            # A stopped process is past any fork that it was in, so a newcomer shows in a list made afterwards. The
            # filter lets no member send SIGCONT; the kernel does when a process ends that held a group together, so
            # nobody may have ended since the last round either.
            if not moving and (members, ended) == before and self.inner_pids() == members:
                return
            if time.monotonic() - begin > FREEZE_SECONDS:
                raise FreezeFailed(f"{len(moving)} processes of the job still ran {FREEZE_SECONDS:g} s after SIGSTOP")
            if moving:
                time.sleep(PAUSE_SECONDS)
            stopped = set(members) - moving
            before = (members, ended)

    def _survey(self, members: list[str], still: frozenset[bytes]) -> tuple[set[str], set[str]]:
        """Which processes have a thread that may run code of the job, and which have ended.

        The first thread is looked at before all of them.
        """
        moving, ended = set(), set()
        for pid in members:
            state = _state(self._read(f"{pid}/stat"))
            if state in ENDED:
                ended.add(pid)
            if state not in still or any(
                _state(self._read(f"{pid}/task/{thread}/stat")) not in still for thread in self._threads(pid)
            ):
                moving.add(pid)
        return moving, ended

    def thaw(self) -> None:
        """Let a frozen job run on."""
        if self.cgroup is not None:
            self.cgroup.thaw()
            return
        for pid in self.inner_pids():
            self._signal(pid, signal.SIGCONT)

    def hold(self, pid: int) -> None:
        """Stop the one member with that inner pid, if it is there, until ``let_go`` or ``thaw``."""
        self._signal(str(pid), signal.SIGSTOP)

    def let_go(self, pid: int) -> None:
        """Let a member run on that ``hold`` has stopped."""
        self._signal(str(pid), signal.SIGCONT)

    def usage(self) -> Usage:
        """Cheap reading of the job's tasks and memory; it never understates resident memory."""
        tasks = memory = 0
        for pid in self.inner_pids():
            fields = _status_fields(self._read(f"{pid}/status"))
            tasks += fields.get("Threads", 0)
            memory += 1024 * sum(fields.get(name, 0) for name in RESIDENT)
        return Usage(tasks=tasks, memory_upper_bound=memory)

    def memory(self) -> int:
        """Resident and swapped bytes of the job, every shared page counted once (PSS); a few milliseconds a process.

        Pages of files (the text of torch) belong to the page cache and are not counted. A process whose map may not
        be read counts with its upper bound.
        """
        total = 0
        for pid in self.inner_pids():
            try:
                fields = _status_fields(self._read(f"{pid}/smaps_rollup"))
                total += 1024 * sum(fields.get(name, 0) for name in PROPORTIONAL)
            except PermissionError:
                fields = _status_fields(self._read(f"{pid}/status"))
                total += 1024 * sum(fields.get(name, 0) for name in RESIDENT)
        return total

    def host_pids(self) -> dict[int, int]:
        """Host pid to inner pid of every member: the descendants of pid 1, to which orphans are handed."""
        family = {self.pid1}
        parents = _parents()
        grown = True
        while grown:  # parents may have higher pids than their children
            more = {pid for pid, parent in parents.items() if parent in family} - family
            family |= more
            grown = bool(more)
        inner = {}
        for pid in family - {self.pid1}:
            number = _inner_pid(pid)
            if number is not None:
                inner[pid] = number
        return inner

    def cpu_seconds(self) -> dict[int, float]:
        """User and system time of every member since it started, by host pid."""
        seconds = {}
        for pid in self.host_pids():
            stat = _host_text(f"/proc/{pid}/stat")
            if stat:
                fields = stat.rpartition(")")[2].split()
                seconds[pid] = (int(fields[11]) + int(fields[12])) / TICK
        return seconds


def _state(stat: bytes) -> bytes:
    """State letter of a stat line; the name before it may itself hold brackets and spaces."""
    return stat.rpartition(b") ")[2][:1] or b"X"


def _status_fields(text: bytes) -> dict[str, int]:
    """The fields of a "name: number" file of /proc that are plain numbers (of kilobytes, where a unit follows)."""
    fields = {}
    for line in text.decode("utf-8", "replace").splitlines():
        name, separator, value = line.partition(":")
        number = value.split(maxsplit=1)[0] if value.strip() else ""
        if separator and number.isdigit():
            fields[name] = int(number)
    return fields


def _host_text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


def _parents() -> dict[int, int]:
    """Parent of every process of the host."""
    parents = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names are wanted, not paths
        if name.isdigit():
            stat = _host_text(f"/proc/{name}/stat")
            if stat:
                parents[int(name)] = int(stat.rpartition(")")[2].split()[1])
    return parents


def _inner_pid(pid: int) -> int | None:
    for line in _host_text(f"/proc/{pid}/status").splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    return None
