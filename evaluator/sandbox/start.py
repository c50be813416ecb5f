"""Starting a job: bubblewrap, the dialogue with the first process inside, the check of every wall, the word to go."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.contract import Isolation
from evaluator.sandbox import seccomp
from evaluator.sandbox.cgroup import Cgroup
from evaluator.sandbox.command import ENTER_TARGET, Identity, bwrap_arguments
from evaluator.sandbox.explain import NO_BWRAP, explain_failure
from evaluator.sandbox.policy import ResourceLimits, SandboxSpec, SandboxUnavailable
from evaluator.sandbox.processes import JobProcesses
from evaluator.sandbox.runtime import current_runtime, find_bwrap
from evaluator.sandbox.uids import UidSlot
from evaluator.sandbox.verify import verify_isolation

START_SECONDS = 30.0
END_SECONDS = 10.0
MESSAGE_BYTES = 1 << 16
CAP_SYS_ADMIN = 21
FDS = struct.Struct("i")
CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


@dataclass
class Started:
    """A started job and everything of the judge's side that belongs to it; ``release`` gives it back."""

    process: subprocess.Popen[bytes]  # bubblewrap's monitor, outside
    life: int  # write end of the pipe whose closing ends the job, however this process ends
    output: int  # read end of the job's stdout and stderr
    slot: UidSlot | None
    pid1: int = -1  # pidfd of the first process inside, with which all the others end
    processes: JobProcesses | None = None
    isolation: Isolation | None = None
    cgroup: Cgroup | None = None

    def kill_first_process(self) -> None:
        """SIGKILL to pid 1 inside: the kernel then kills the whole pid namespace."""
        with contextlib.suppress(ProcessLookupError):  # it has ended already
            signal.pidfd_send_signal(self.pid1, signal.SIGKILL)

    def abort(self) -> None:
        """End a start that failed half-way."""
        if self.pid1 >= 0:
            self.kill_first_process()
        else:
            self.process.kill()  # nothing of the job runs yet; what bubblewrap started dies with it
        self.process.wait(END_SECONDS)
        self.release()

    def release(self) -> None:
        if self.processes is not None:
            self.processes.close()
            self.processes = None
        for fd in (self.pid1, self.output, self.life):
            if fd >= 0:
                os.close(fd)
        self.pid1 = self.output = self.life = -1
        if self.cgroup is not None:
            cgroup, self.cgroup = self.cgroup, None
            cgroup.remove()
        if self.slot is not None:
            self.slot.release()
            self.slot = None


def start_job(spec: SandboxSpec) -> Started:
    """Start ``spec``; returns when its command has been executed. The calling thread must outlive the job.

    Raises SandboxUnavailable where this host cannot isolate the job, ValueError for a spec that must not be.
    """
    bwrap = find_bwrap()
    if bwrap is None:
        raise NO_BWRAP
    slot = UidSlot.take() if os.geteuid() == 0 else None
    identity = Identity(uid=slot.uid if slot else None, user_namespace=slot is None or not _may_mount())
    with ExitStack() as stack:
        try:
            started, info, control = _spawn(spec, identity, bwrap, slot, stack)
        except BaseException:
            if slot:
                slot.release()
            raise
        try:
            _let_go(spec, identity, started, info, control)
        except BaseException:
            started.abort()
            raise
    return started


def _may_mount() -> bool:
    """True if this process has CAP_SYS_ADMIN; root in a container often has not."""
    for line in Path("/proc/self/status").read_text(encoding="utf-8", errors="replace").splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_ADMIN & 1)
    return False


def _spawn(
    spec: SandboxSpec, identity: Identity, bwrap: Path, slot: UidSlot | None, stack: ExitStack
) -> tuple[Started, int, socket.socket]:
    """Run bubblewrap; ``stack`` closes what only the start needs."""
    info, info_inside = os.pipe()
    stack.callback(os.close, info)
    control, control_inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    stack.enter_context(control)
    control.settimeout(START_SECONDS)
    control.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    with ExitStack() as inside:  # our copies of what is for the other side
        inside.callback(os.close, info_inside)
        inside.enter_context(control_inside)
        output, output_inside = os.pipe()
        inside.callback(os.close, output_inside)
        life_inside, life = os.pipe()
        inside.callback(os.close, life_inside)
        passed = [*spec.pass_fds, info_inside, control_inside.fileno(), life_inside]

        def data_fd(data: bytes) -> int:
            passed.append(_memory_file(data))
            inside.callback(os.close, passed[-1])
            return passed[-1]

        try:
            arguments = bwrap_arguments(spec, identity, current_runtime(), data_fd)
            arguments += ["--seccomp", str(data_fd(seccomp.program(spec.seccomp_profile)))]
            arguments += [
                "--info-fd",
                str(info_inside),
                "--",
                *_enter(spec, identity, control_inside.fileno(), life_inside),
            ]
            process = subprocess.Popen(
                [str(bwrap), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output_inside,
                stderr=output_inside,
                pass_fds=passed,
                cwd="/",
                env={},
                user=identity.uid if identity.user_namespace else None,
                group=identity.uid if identity.user_namespace else None,
                extra_groups=[] if identity.user_namespace and identity.uid is not None else None,
            )
        except PermissionError as error:
            os.close(output)
            os.close(life)
            raise SandboxUnavailable(
                f"bubblewrap at {bwrap} cannot be run by another user: {error.strerror}.",
                "Install the environment where every user can read it, or give root the capability SYS_ADMIN.",
            ) from error
        except BaseException:
            os.close(output)
            os.close(life)
            raise
    return Started(process=process, life=life, output=output, slot=slot), info, control


def _enter(spec: SandboxSpec, identity: Identity, control: int, life: int) -> list[str]:
    """Command of the first process inside; it becomes the job's reaper."""
    config = {
        "argv": list(spec.argv),
        "fds": list(spec.pass_fds),
        "control": control,
        "life": life,
        "uid": None if identity.user_namespace else identity.uid,
        "gid": None if identity.user_namespace else identity.uid,
        "rlimits": rlimits(spec.limits, count_processes=not identity.user_namespace or processes_counted_apart()),
    }
    return [sys.executable, "-I", "-S", "-B", ENTER_TARGET, json.dumps(config)]


def processes_counted_apart(release: str | None = None) -> bool:
    """True if the kernel counts a user's processes separately in every user namespace, as it does since Linux 5.14.

    Before, the limit would count all that the user runs on this host, and keep jobs from starting.
    """
    major, minor = (release or platform.release()).split("-")[0].split(".")[:2]
    return (int(major), int(minor)) >= (5, 14)


def rlimits(limits: ResourceLimits, *, count_processes: bool) -> dict[str, int]:
    """The limits that the kernel keeps for every process of the job, by their names in the ``resource`` module."""
    # One for pid 1, and one more so that the limit can be seen to be exceeded.
    processes = {"RLIMIT_NPROC": limits.processes + 2} if count_processes else {}
    return {
        **processes,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_FSIZE": limits.file_bytes,
        # 1, not 0: too small for any core file, and the one value at which the kernel starts no core handler either.
        "RLIMIT_CORE": 1,
        "RLIMIT_MSGQUEUE": 0,
    }


def _let_go(spec: SandboxSpec, identity: Identity, started: Started, info: int, control: socket.socket) -> None:
    """The dialogue: find the processes inside, check what holds them, let the second become the job."""
    pid1 = _child_pid(identity, started, info)
    started.pid1 = os.pidfd_open(pid1)
    job, namespaces, proc = _ready(identity, started, control)
    started.processes = JobProcesses(proc, pid1)
    started.cgroup = started.processes.cgroup = _own_cgroup(job, spec.limits)
    started.isolation = verify_isolation((pid1, job), identity, namespaces, spec.limits, started.cgroup)
    signal.pidfd_send_signal(started.pid1, 0)  # raises if it has ended: then ``pid1`` may be another process's
    control.send(b"g")
    answer = control.recv(MESSAGE_BYTES)
    if answer:
        raise SandboxUnavailable(
            f"The command could not be started inside the sandbox: {answer.decode('utf-8', 'replace')}.",
            "The program and everything it needs must be readable for any user.",
        )


def _own_cgroup(pid: int, limits: ResourceLimits) -> Cgroup | None:
    """A control group that holds the process and so all that come from it; None where there cannot be one.

    Pid 1 stays outside: it must be able to end the job while the job is stopped.
    """
    cgroup = Cgroup.create(limits)
    if cgroup is not None and not cgroup.add(pid):
        cgroup.remove()
        return None
    return cgroup


def _child_pid(identity: Identity, started: Started, info: int) -> int:
    """Host pid of the first process inside, from bubblewrap's info; it closes the pipe when it has told all."""
    text = b""
    deadline = time.monotonic() + START_SECONDS
    while select.select([info], [], [], max(0.0, deadline - time.monotonic()))[0]:
        part = os.read(info, MESSAGE_BYTES)
        if not part:
            break
        text += part
    try:
        told: dict[str, Any] = json.loads(text)
        return int(told["child-pid"])
    except (ValueError, KeyError):
        raise _failed(identity, started) from None


def _ready(identity: Identity, started: Started, control: socket.socket) -> tuple[int, dict[str, str], int]:
    """From the process that becomes the job: its host pid, its namespaces, and a descriptor of the /proc there."""
    space = socket.CMSG_SPACE(FDS.size) + socket.CMSG_SPACE(CREDENTIALS.size)
    try:
        message, ancillary, _, _ = control.recvmsg(MESSAGE_BYTES, space, socket.MSG_CMSG_CLOEXEC)
    except TimeoutError:
        raise SandboxUnavailable(
            f"The sandbox was not ready within {START_SECONDS:g} s.", "Look whether this host is overloaded."
        ) from None
    told = {kind: data for _, kind, data in ancillary}
    if not message or socket.SCM_RIGHTS not in told:
        raise _failed(identity, started)
    (proc,) = FDS.unpack(told[socket.SCM_RIGHTS])
    pid, _, _ = CREDENTIALS.unpack(told[socket.SCM_CREDENTIALS])  # the kernel gives the pid as it is known here
    namespaces: dict[str, str] = json.loads(message)["ready"]
    return pid, namespaces, proc


def _failed(identity: Identity, started: Started) -> SandboxUnavailable:
    """Why nothing came: from what bubblewrap or the first process printed before it ended."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        started.process.wait(END_SECONDS)
    os.set_blocking(started.output, False)
    try:
        printed = os.read(started.output, MESSAGE_BYTES)
    except BlockingIOError:
        printed = b""
    return explain_failure(printed.decode("utf-8", "replace"), identity.user_namespace)


def _memory_file(data: bytes) -> int:
    fd = os.memfd_create("sandbox")
    os.write(fd, data)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
