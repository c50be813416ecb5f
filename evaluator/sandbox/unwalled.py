"""A job without walls, for the demonstration files alone, on hosts where no sandbox can be made.

It has the surface of ``Sandbox``. What a sandbox shows at a path such as ``/submission`` lies below a private folder
here (``path``), and the ports of a job are free ones of the host (``first_port``). Nothing keeps the job from the rest
of the host, so whoever starts one must know the code.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from evaluator.contract import Isolation
from evaluator.sandbox.policy import BASE_ENVIRONMENT, SandboxLeftovers, SandboxSpec, Violation

KILL_SECONDS = 10.0
TICK = os.sysconf("SC_CLK_TCK")
PATHS = ("/pkb", "/submission", "/tmp", "/dev/shm")  # noqa: S108 - of the sandbox
KEPT = ("PATH", "PKB_RUN")  # of the host's environment; the mark of ./run finds the job if everything above it dies
PORTS = 64  # launches of one job, each with a port of its own
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class UnwalledJob:
    """One job as an ordinary process in a session of its own; its members are the processes of that session."""

    isolation = Isolation(mode="none", uid=os.getuid(), network=False, seccomp=False, cgroup=False)
    violation: Violation | None = None

    def __init__(self, spec: SandboxSpec) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="pkb-unwalled-"))
        self.first_port = _free_ports()
        self._spec = spec
        for path in PATHS:
            (self.root / path[1:]).mkdir(parents=True, exist_ok=True)
        (self.root / "tmp" / "home").mkdir()
        for bind in spec.binds:
            target = self.root / bind.target[1:]
            if target.is_dir():
                target.rmdir()
            target.symlink_to(bind.source)
        environment = {**BASE_ENVIRONMENT, **spec.environment}
        environment = {name: self._translated(value) for name, value in environment.items()}
        environment |= {name: os.environ[name] for name in KEPT if name in os.environ}
        with (self.root / "output").open("wb") as output:
            self._popen = subprocess.Popen(
                spec.argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=spec.pass_fds,
                cwd=self.root,
                env=environment,
                start_new_session=True,
                preexec_fn=lambda: _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL),
            )

    def path(self, inside: str) -> str:
        """Where a path of the sandbox lies here."""
        return f"{self.root}{inside}"

    def _translated(self, value: str) -> str:
        return self.path(value) if value.startswith(PATHS) else value

    def members(self) -> list[int]:
        """Pids of all processes of the job, in ascending order."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                fields = _stat(int(entry.name))
                if fields and fields[0] != "Z" and int(fields[3]) == self._popen.pid:
                    found.append(int(entry.name))
        return sorted(found)

    def inner_pids(self) -> dict[int, int]:
        """Host pid to the pid inside: the same here."""
        return {pid: pid for pid in self.members()}

    def freeze(self) -> None:
        """Stop every process of the job."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen job run on."""
        self._signal(signal.SIGCONT)

    def hold(self, pid: int) -> None:
        """Stop one process of the job while the others run on; nothing if it is gone."""
        self._signal(signal.SIGSTOP, pid)

    def let_go(self, pid: int) -> None:
        """Let a process run on that ``hold`` has stopped."""
        self._signal(signal.SIGCONT, pid)

    def cpu_seconds(self) -> dict[int, float]:
        """User and system time of every process since it started, by pid."""
        stats = {pid: _stat(pid) for pid in self.members()}
        return {pid: (int(fields[11]) + int(fields[12])) / TICK for pid, fields in stats.items() if fields}

    def output(self) -> str:
        """The last part of what the job printed on stdout and stderr."""
        tail = (self.root / "output").read_bytes()[-self._spec.limits.output_tail_bytes :]
        return tail.decode("utf-8", "replace")

    def wait(self, timeout: float | None = None) -> int | None:
        """Exit status of the command, 128 + n if signal n ended it; None if it still runs after ``timeout`` seconds."""
        try:
            status = self._popen.wait(timeout)
        except subprocess.TimeoutExpired:
            return None
        return status if status >= 0 else 128 - status

    def kill(self) -> None:
        """Kill the job and remove its folder; may be called again. Raises SandboxLeftovers if something lives on."""
        deadline = time.monotonic() + KILL_SECONDS
        while self.members():
            if time.monotonic() > deadline:
                raise SandboxLeftovers(f"processes of the job are still there {KILL_SECONDS:g} s after SIGKILL")
            self._signal(signal.SIGKILL)
            self._popen.poll()
            time.sleep(0.02)
        self._popen.wait()
        shutil.rmtree(self.root, ignore_errors=True)

    def _signal(self, number: int, only: int | None = None) -> None:
        """Sends a signal to every process of the job, or to one of them."""
        for pid in [pid for pid in self.members() if only in (None, pid)]:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue  # ended meanwhile


def _stat(pid: int) -> list[str]:
    """Fields of /proc/PID/stat from the state on; empty if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _free_ports() -> int:
    """First of ``PORTS`` neighbouring ports of the loopback interface, the first of which is free now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return min(port, 65_535 - PORTS)
