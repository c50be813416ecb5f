"""Runs references on W gloo ranks of this machine, many problems in one process group.

For trusted code only: ``check`` and the tests. One helper process imports torch once and forks the ranks, so that four
ranks do not import it four times; a rank runs one call after another until it is told to stop. A call that fails or
hangs is reported for its own problem, and the group is started afresh for the next one.
"""

from __future__ import annotations

import datetime
import io
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import torch
import torch.distributed as dist

from problems.suite import registry
from problems.suite.base import Args, Group

CALL_SECONDS = 60.0
START_SECONDS = 120.0
GRACE_SECONDS = 2.0  # for the other ranks to fail too, after the first one has
_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class RankResult:
    """What one rank did: its output, its arguments as the call left them, or the traceback; seconds of the call."""

    output: Any = None
    args: Args = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0


class Ranks:
    """W persistent gloo ranks; use as a context manager. Not for use by several threads at once."""

    def __init__(self, world_size: int, *, call_seconds: float = CALL_SECONDS) -> None:
        self.world_size = world_size
        self._call_seconds = call_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._links: list[Connection] = []
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def call(self, target: int | str, args: Sequence[Args]) -> list[RankResult]:
        """Calls ``solution`` on every rank with its own arguments; the caller's tensors stay as they are.

        ``target``: id of a problem, or the source text of a file that defines ``solution``. Never raises for what the
        call does: the results of all ranks are there, with ``error`` set where a rank failed, died or was stopped.
        """
        if len(args) != self.world_size:
            raise ValueError(f"arguments for {len(args)} ranks, but the group has {self.world_size}")
        if self._process is None:
            self._start()
        try:
            for link, own in zip(self._links, args, strict=True):
                link.send_bytes(_pack((target, own)))
        except BrokenPipeError:
            self.close()
            return [RankResult(error="the ranks of this group had died before the call")] * self.world_size
        results = self._collect()
        if any(result.error for result in results):
            self.close()  # ranks may be left in a collective; the next call gets a fresh group
        return results

    def close(self) -> None:
        """Stops all ranks; the next call starts new ones."""
        for link in self._links:
            link.close()
        self._links = []
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def _start(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="ranks-")
        pairs = [socket.socketpair() for _ in range(self.world_size)]
        remote = [str(theirs.fileno()) for _, theirs in pairs]
        command = [sys.executable, "-m", "problems.suite.ranks", str(Path(self._folder.name) / "rendezvous"), *remote]
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        # A process group of its own, so that killing it reaches every rank whatever state it is in.
        self._process = subprocess.Popen(
            command, cwd=_ROOT, env=environment, pass_fds=[int(fd) for fd in remote], start_new_session=True
        )
        for _, theirs in pairs:
            theirs.close()
        self._links = [Connection(ours.detach()) for ours, _ in pairs]
        if not all(link.poll(START_SECONDS) for link in self._links):
            self.close()
            raise RuntimeError(f"{self.world_size} gloo ranks were not ready within {START_SECONDS:.0f} s")
        try:
            for link in self._links:
                link.recv_bytes()
        except EOFError:
            self.close()
            raise RuntimeError("a gloo rank died while starting; its error is on standard error") from None

    def _collect(self) -> list[RankResult]:
        """One result per rank; ranks that do not answer in time get an error that says so."""
        results: dict[int, RankResult] = {}
        deadline = time.monotonic() + self._call_seconds
        reason = f"no answer within {self._call_seconds:.0f} s"
        while len(results) < self.world_size:
            waiting = {self._links[r]: r for r in range(self.world_size) if r not in results}
            ready = wait(list(waiting), timeout=max(0.0, deadline - time.monotonic()))
            if not ready:
                break
            for link in ready:
                assert isinstance(link, Connection)
                rank = waiting[link]
                results[rank] = _receive(link)
                if results[rank].error and reason.startswith("no answer"):
                    reason = f"stopped, because rank {rank} failed"
                    deadline = min(deadline, time.monotonic() + GRACE_SECONDS)
        return [results.get(rank, RankResult(error=reason)) for rank in range(self.world_size)]


def _receive(link: Connection) -> RankResult:
    try:
        result: RankResult = _unpack(link.recv_bytes())
    except (EOFError, ConnectionResetError):
        return RankResult(error="the process of this rank died during the call")
    return result


def _pack(value: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def _unpack(data: bytes) -> Any:
    # Full unpickling: both ends are this module, over a socket pair that nobody else holds.
    return torch.load(io.BytesIO(data), weights_only=False)


def _main(rendezvous: str, *fds: str) -> None:
    """Forks one rank for each file descriptor and waits for them."""
    children = []
    for rank, fd in enumerate(fds):
        pid = os.fork()
        if pid == 0:
            for other in fds[:rank] + fds[rank + 1 :]:
                os.close(int(other))
            _serve(rendezvous, rank, len(fds), Connection(int(fd)))
            os._exit(0)
        children.append(pid)
    for fd in fds:
        os.close(int(fd))
    for pid in children:
        os.waitpid(pid, 0)


def _serve(rendezvous: str, rank: int, world_size: int, link: Connection) -> None:
    """A rank: joins the group, then answers calls until the other end is closed."""
    torch.set_num_threads(1)
    # References use the collectives' names that torch 2.11 knows too; newer ones call some of them deprecated.
    warnings.filterwarnings("ignore", category=FutureWarning, module="torch.distributed")
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=world_size,
        timeout=datetime.timedelta(seconds=START_SECONDS),
    )
    groups: dict[Group, dist.ProcessGroup | None] = {}
    link.send_bytes(b"ready")
    while True:
        try:
            target, args = _unpack(link.recv_bytes())
        except EOFError:
            return
        link.send_bytes(_pack(_answer(target, args, rank, groups)))


def _answer(target: int | str, args: Args, rank: int, groups: dict[Group, dist.ProcessGroup | None]) -> RankResult:
    try:
        solution = _solution(target)
        resolved = {name: _resolve(value, rank, groups) for name, value in args.items()}
        dist.barrier()
        started = time.perf_counter()
        output = solution(**resolved)
        seconds = time.perf_counter() - started
        # Process groups cannot travel; the arguments go back with the descriptions they came with.
        after = {name: args[name] if isinstance(args[name], Group) else value for name, value in resolved.items()}
        return RankResult(output=output, args=after, seconds=seconds)
    except Exception:
        return RankResult(error=traceback.format_exc())


def _solution(target: int | str) -> Callable[..., Any]:
    if isinstance(target, int):
        return registry.get(target).solution
    namespace: dict[str, Any] = {"__name__": "reference"}
    exec(compile(target, "<reference>", "exec"), namespace)  # noqa: S102 - trusted text, see the module's docstring
    solution: Callable[..., Any] = namespace["solution"]
    return solution


def _resolve(value: Any, rank: int, groups: dict[Group, dist.ProcessGroup | None]) -> Any:
    """The value with process groups in place of their descriptions; every rank makes every group, in one order."""
    if not isinstance(value, Group):
        return value
    if value not in groups:
        groups[value] = None
        for members in value.partition:
            made = dist.new_group(list(members))
            if rank in members:
                assert isinstance(made, dist.ProcessGroup)
                groups[value] = made
    return groups[value]


if __name__ == "__main__":
    # Through the imported module, so that results carry its classes and not those of a module called __main__.
    from problems.suite import ranks

    ranks._main(*sys.argv[1:])
