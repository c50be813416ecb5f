"""A running job: watched, stopped still, measured, ended."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from evaluator.contract import Isolation
from evaluator.sandbox.policy import SandboxLeftovers, SandboxSpec, SeccompProfile, Violation
from evaluator.sandbox.start import Started, start_job

# The driver takes the contexts of a killed process down one by one, the more slowly the more the GPU has to do.
KILL_SECONDS: Mapping[SeccompProfile, float] = {"cpu": 10.0, "cuda": 60.0}
FIRST_PORT = 29_500  # every sandbox has a network of its own, so the number is free
WATCH_SECONDS = 0.25
READ_BYTES = 1 << 16


class Sandbox:
    """One job in its sandbox. Made by ``start``; ``kill`` must be called in the end (leaving a ``with`` does).

    ``isolation`` says what was found to be in force; ``violation`` is set once the job broke a limit and was killed.
    """

    isolation: Isolation
    first_port = FIRST_PORT

    def __init__(self, spec: SandboxSpec) -> None:
        self.spec = spec
        self.violation: Violation | None = None
        self._tail = bytearray()
        self._printed = 0
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._failure: BaseException | None = None
        self._status: int | None = None
        self._job: Started | None = None
        self._shared_memory_before = machine_shared_memory()
        # bubblewrap dies with the thread that started it, so that thread lives as long as the job.
        self._thread = threading.Thread(target=self._run, name="sandbox", daemon=True)

    @classmethod
    def start(cls, spec: SandboxSpec) -> Sandbox:
        """Start ``spec``; returns when its command has been executed.

        Raises SandboxUnavailable where this host cannot isolate it, ValueError for a spec that must not be.
        """
        sandbox = cls(spec)
        sandbox._thread.start()
        sandbox._begun.wait()
        if sandbox._failure is not None:
            sandbox._thread.join()
            raise sandbox._failure
        return sandbox

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def path(self, inside: str) -> str:
        """Where the job finds what the judge has put at ``inside``."""
        return inside

    def members(self) -> list[int]:
        """Host pids of all processes of the job, in ascending order."""
        return sorted(self.inner_pids())

    def inner_pids(self) -> dict[int, int]:
        """Host pid to the pid that the process has inside, for every process of the job."""
        return self._job.processes.host_pids() if self._job and self._job.processes else {}

    def freeze(self) -> None:
        """Stop every process of the job; on return none can run. Raises FreezeFailed if one cannot be stopped."""
        if self._job and self._job.processes:
            self._job.processes.freeze()

    def thaw(self) -> None:
        """Let a frozen job run on."""
        if self._job and self._job.processes:
            self._job.processes.thaw()

    def hold(self, pid: int) -> None:
        """Stop one process, by the pid that it has inside, while the others run on; nothing if it is gone."""
        if self._job and self._job.processes:
            self._job.processes.hold(pid)

    def let_go(self, pid: int) -> None:
        """Let a process run on that ``hold`` has stopped."""
        if self._job and self._job.processes:
            self._job.processes.let_go(pid)

    def cpu_seconds(self) -> dict[int, float]:
        """User and system time of every process since it started, by host pid."""
        return self._job.processes.cpu_seconds() if self._job and self._job.processes else {}

    def output(self) -> str:
        """The last part of what the job printed on stdout and stderr, as far as it has been read."""
        return bytes(self._tail).decode("utf-8", "replace")

    def wait(self, timeout: float | None = None) -> int | None:
        """Exit status of the command, 128 + n if signal n ended it; None if it still runs after ``timeout`` seconds.

        Raises what the watch over the limits met, if it could not go on: it has killed the job then.
        """
        if not self._ended.wait(timeout):
            return None
        if self._failure is not None:
            raise self._failure
        return self._status

    def kill(self) -> None:
        """Kill everything inside and make sure that it is gone; may be called again.

        Raises SandboxLeftovers if something outlives SIGKILL (a process stuck in a driver): the host is not clean.
        """
        if self._job is None or self._job.processes is None:
            return
        patience = KILL_SECONDS[self.spec.seccomp_profile]
        self._job.kill_first_process()
        # Readable only after the kernel has emptied the pid namespace.
        if not select.select([self._job.pid1], [], [], patience)[0]:
            raise SandboxLeftovers(f"processes of the job are still there {patience:g} s after SIGKILL")
        self._thread.join(patience)
        if self._thread.is_alive():
            raise SandboxLeftovers(f"bubblewrap did not end within {patience:g} s of its job")
        left = self._job.processes.inner_pids()
        if left:
            raise SandboxLeftovers(f"{len(left)} processes of the job are still there after SIGKILL")
        self._job.release()

    # The thread that starts the job and watches it.

    def _run(self) -> None:
        try:
            self._job = start_job(self.spec)
            assert self._job.isolation is not None
            self.isolation = self._job.isolation
        except BaseException as failure:
            self._failure = failure
            return
        finally:
            self._begun.set()
        self._watch(self._job)

    def _watch(self, job: Started) -> None:
        """Read the output and look at the limits until bubblewrap ends, which it does with the job."""
        os.set_blocking(job.output, False)
        monitor = os.pidfd_open(job.process.pid)
        poll = select.poll()
        poll.register(monitor, select.POLLIN)
        poll.register(job.output, select.POLLIN)
        look = time.monotonic()
        try:
            while True:
                ready = dict(poll.poll(max(0.0, look - time.monotonic()) * 1000))
                if job.output in ready and not self._read(job.output):
                    poll.unregister(job.output)
                if monitor in ready:
                    break
                if time.monotonic() >= look:
                    self._look(job)
                    look = time.monotonic() + WATCH_SECONDS
            while self._printed <= self.spec.limits.output_bytes and self._read(job.output):
                pass
            if self.violation is None and job.cgroup is not None and job.cgroup.out_of_memory():
                limits = self.spec.limits
                limit = limits.memory_bytes + limits.shm_bytes + limits.tmp_bytes
                self.violation = Violation("memory", limit, limit)
        except BaseException as failure:  # nobody watches the limits any more
            self._failure = failure
            job.kill_first_process()
        finally:
            os.close(monitor)
            self._status = job.process.wait()
            self._ended.set()

    def _read(self, output: int) -> bool:
        """Take what is there into the bounded tail; False if there is nothing (left)."""
        try:
            data = os.read(output, READ_BYTES)
        except BlockingIOError:
            return False
        self._printed += len(data)
        self._tail += data
        del self._tail[: -self.spec.limits.output_tail_bytes]
        return bool(data)

    def _look(self, job: Started) -> None:
        """Kill the job if it is over a limit."""
        if self.violation is None:
            self.violation = self._broken_limit(job)
            if self.violation is not None:
                job.kill_first_process()

    def _broken_limit(self, job: Started) -> Violation | None:
        limits = self.spec.limits
        assert job.processes is not None
        usage = job.processes.usage()
        if usage.tasks > limits.processes:
            return Violation("processes", usage.tasks, limits.processes)
        if usage.memory_upper_bound > limits.memory_bytes:
            memory = job.processes.memory()
            if memory > limits.memory_bytes:
                return Violation("memory", memory, limits.memory_bytes)
        if self.spec.seccomp_profile == "cuda" and "memory" not in (job.cgroup.controllers if job.cgroup else ()):
            # Shared pages that no process maps at the moment are in nobody's figures but the machine's, which on a
            # GPU host is the job's alone. Other jobs cannot have such pages.
            shared = machine_shared_memory() - self._shared_memory_before
            shared_limit = limits.memory_bytes + limits.shm_bytes + limits.tmp_bytes
            if shared > shared_limit:
                return Violation("shared memory", shared, shared_limit)
        if self._printed > limits.output_bytes:
            return Violation("output", self._printed, limits.output_bytes)
        return None


def machine_shared_memory() -> int:
    """Bytes of shared memory and tmpfs files on this machine."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("Shmem:"):
            return int(line.split()[1]) * 1024
    return 0
