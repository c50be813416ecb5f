"""One arm of the comparison: a sandbox with a fork server, from which every launch of ranks is forked.

Reference and candidate run through the same code; whatever is measured is measured alike.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import os
import secrets
import select
import shutil
import signal
import socket
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import evaluator.runner
from evaluator.contract import Code
from evaluator.judge.faults import Fault, HarnessFault
from evaluator.judge.hardware import HOST, Hardware
from evaluator.runner.wire import MAX_FRAME, BadFrame, pack
from evaluator.sandbox import Bind, FreezeFailed, ResourceLimits, Sandbox, SandboxSpec, UnwalledJob, python_command

log = logging.getLogger(__name__)

RUNNER = Path(evaluator.runner.__file__).parent
START_SECONDS = 90.0
CLEAR_SECONDS = 20.0
QUERY_PERSONALITY, ADDR_NO_RANDOMIZE = 0xFFFFFFFF, 0x0040000  # personality(2)
PREFIX = "pkb-judge-"
YOUNG_SECONDS = 60.0  # between making a folder and locking it another judge must not take it for a left one
HOME = "/tmp/home"  # noqa: S108  inside the sandbox, as the next
BUILT = ("torch_extensions", "triton", "inductor")  # below HOME, as the policy of the sandbox says
WRITABLE = (HOME, "/tmp", "/dev/shm")  # noqa: S108


class Arm:
    """The sandboxed job of one arm. Making it returns at once; ``wait_up`` waits until ranks can be forked.

    ``walled`` False is for code that we know, where no sandbox can be made.
    """

    def __init__(
        self,
        name: str,
        *,
        world_size: int,
        threads: int,
        limits: ResourceLimits,
        walled: bool = True,
        hardware: Hardware = HOST,
    ) -> None:
        self.name = name
        self.world_size = world_size
        self._settings = (threads, limits, walled)
        self.kept: tuple[str, ...] = ()
        """What stays of HOME between launches: only where all that runs in the arm is ours."""
        self.hardware = hardware
        self.launches = 0
        self.torch = ""
        self.python = ""
        self.folder, self._lock = private_folder(name)
        self.control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            spec = self._spec(inside.fileno(), threads, limits)
            with same_addresses():
                self.sandbox: Sandbox | UnwalledJob = Sandbox.start(spec) if walled else UnwalledJob(spec)
        except BaseException:
            self.control.close()
            shutil.rmtree(self.folder)
            os.close(self._lock)
            raise
        finally:
            inside.close()
        self.base: set[int] = set()

    def _spec(self, control: int, threads: int, limits: ResourceLimits) -> SandboxSpec:
        return SandboxSpec(
            argv=python_command("-u", "-m", "runner.zygote", str(control)),
            binds=(
                Bind(RUNNER, "/pkb/runner"),
                Bind(RUNNER / "utils", "/pkb/utils"),
                Bind(self.folder, "/submission"),
            ),
            pass_fds=(control,),
            environment={
                "PYTHONPATH": "/pkb",
                "PYTHONHASHSEED": "0",  # as same_addresses: no chance difference between the arms
                "OMP_NUM_THREADS": str(threads),
                "MKL_NUM_THREADS": str(threads),
                "GLOO_SOCKET_IFNAME": "lo",
                "TORCH_SHOW_CPP_STACKTRACES": "0",
                **self.hardware.environment,
            },
            limits=limits,
            devices=self.hardware.nodes,
            seccomp_profile=self.hardware.device,
        )

    def twin(self, name: str) -> Arm:
        """Another arm with the same ranks, threads, limits and hardware, for code of ours that compiles itself."""
        threads, limits, walled = self._settings
        for_ours = Arm(
            name, world_size=self.world_size, threads=threads, limits=limits, walled=walled, hardware=self.hardware
        )
        for_ours.keep_compiled()
        return for_ours

    def keep_compiled(self) -> None:
        """Keeps what torch.compile has built from launch to launch; foreign code must never run in such an arm."""
        self.kept = ("inductor", "triton")

    def submit(self, source: str) -> None:
        """Puts the file where every launch imports it from."""
        path = self.folder / "solution.py"
        path.write_text(source, encoding="utf-8")
        path.chmod(0o644)

    def wait_up(self) -> None:
        """Waits until the fork server has imported torch. Raises HarnessFault: no foreign code has run yet."""
        from evaluator.judge.frames import Up, parse

        if not select.select([self.control], [], [], START_SECONDS)[0]:
            raise HarnessFault(f"The {self.name} job did not start within {START_SECONDS:.0f} s.")
        packet = self.control.recv(MAX_FRAME + 1)
        if not packet:
            self.sandbox.wait(5)
            log.error("the %s job ended while it started: %s", self.name, self.sandbox.output()[-2_000:])
            raise HarnessFault(f"The {self.name} job ended while it started; the judge's log says more.")
        up = parse(packet)
        if not isinstance(up, Up):
            raise HarnessFault(f"The {self.name} job started with an unexpected message.")
        self.torch, self.python = up.torch, up.python
        self.base = set(self.sandbox.members())

    def command(self, message: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """Sends a command to the fork server. Raises what ``lost`` returns if it is gone."""
        try:
            socket.send_fds(self.control, [pack(message)], list(descriptors), socket.MSG_DONTWAIT)
        except OSError as error:
            raise self.lost() from error

    def blame(self, fault: Fault) -> Fault | HarnessFault:
        """Who is to blame for a fault in this arm: the candidate for its own, this host for one of the reference."""
        if self.name == "reference":
            return HarnessFault(f"The reference failed on this host: {fault.message}")
        return fault

    def lost(self) -> Fault | HarnessFault:
        """What to raise when the fork server does not answer."""
        return self.blame(self.loss())

    def loss(self) -> Fault:
        """Why the fork server does not answer: once it is up, only foreign code can have ended it."""
        violation = self.sandbox.violation
        if violation is not None:
            code = Code.OUT_OF_MEMORY if "memory" in violation.kind else Code.RUNTIME_ERROR
            return Fault(code, violation.sentence, normalised=f"limit {violation.kind}")
        return Fault(Code.RUNTIME_ERROR, "A rank ended or stopped the process from which the ranks are started.")

    def freeze(self) -> None:
        """Stops every process of the job. Raises Fault if that cannot be done twice in a row."""
        try:
            self.sandbox.freeze()
        except FreezeFailed:
            try:
                self.sandbox.freeze()
            except FreezeFailed as error:
                message = "The processes of the submission could not be stopped, so its calls cannot be timed."
                raise self.blame(Fault(Code.RUNTIME_ERROR, message)) from error

    def clear(self) -> None:
        """Kills all that a launch has left, and empties the folders it could write to.

        Everything is stopped first: what cannot run cannot fork, and no process number is used anew.
        """
        self.freeze()
        for pid in self.sandbox.members():
            # A rank may have stopped the fork server, which is of the same user.
            os.kill(pid, signal.SIGCONT if pid in self.base else signal.SIGKILL)
        self.sandbox.thaw()
        nonce = secrets.token_hex(8)
        folders = [self.sandbox.path(folder) for folder in WRITABLE]
        keep = [self.sandbox.path(HOME), *(self.sandbox.path(f"{HOME}/{name}") for name in self.kept)]
        built = [self.sandbox.path(f"{HOME}/{name}") for name in BUILT if name not in self.kept]
        self.command({"do": "clear", "nonce": nonce, "folders": folders, "keep": keep, "built": built})
        self._await_cleared(nonce)

    def _await_cleared(self, nonce: str) -> None:
        from evaluator.judge.frames import Answer, parse

        deadline = time.monotonic() + CLEAR_SECONDS
        while select.select([self.control], [], [], max(0.0, deadline - time.monotonic()))[0]:
            packet = self.control.recv(MAX_FRAME + 1, socket.MSG_DONTWAIT)
            if not packet:
                break
            try:
                frame = parse(packet)
            except BadFrame as error:
                raise self.blame(Fault(Code.INTEGRITY, f"The fork server sent a {error}.")) from error
            if isinstance(frame, Answer) and frame.kind == "cleared" and frame.nonce == nonce:
                return
        raise self.lost()

    def stop(self) -> None:
        """Ends everything in the sandbox and verifies that it is gone."""
        try:
            self.sandbox.kill()
        finally:
            self.control.close()
            shutil.rmtree(self.folder, ignore_errors=True)
            os.close(self._lock)


@contextlib.contextmanager
def same_addresses() -> Iterator[None]:
    """Starts what is started inside without randomised addresses.

    All ranks of an arm are forked from one fork server and so share its addresses. Drawn by chance, they would be a
    difference between the arms that no number of pairs averages out. Where the call is refused (in some containers),
    addresses stay random.
    """
    libc = ctypes.CDLL(None)
    before = libc.personality(ctypes.c_ulong(QUERY_PERSONALITY))
    libc.personality(ctypes.c_ulong(before | ADDR_NO_RANDOMIZE))
    try:
        yield
    finally:
        libc.personality(ctypes.c_ulong(before))


def private_folder(name: str) -> tuple[Path, int]:
    """A new folder for a submission and the lock on it, which ends with this process.

    Folders whose judge was killed are removed on the way: nobody holds the lock on them any more.
    """
    for left in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):  # another judge holds it, or was faster
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(lock).st_mtime > YOUNG_SECONDS:
                    shutil.rmtree(left)
            finally:
                os.close(lock)
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{name}-"))
    folder.chmod(0o755)  # the job runs as another user
    lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return folder, lock
