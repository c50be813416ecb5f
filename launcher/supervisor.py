"""Starts processes, watches them, stops them: nothing is left, whichever way it ends."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import NoReturn

from launcher import strays
from launcher.console import Refusal, say

POLL = 0.2  # seconds between two looks at the processes
GRACE = 10.0  # seconds between the request to stop and SIGKILL
LOG_LIMIT = 10 * 1024 * 1024  # bytes of one log; it is then moved to NAME.log.1, over an older one
LOG_LOOK = 50  # every so many polls the logs' sizes are looked at
LINES_SHOWN = 15
_PR_SET_CHILD_SUBREAPER = 36
_libc = ctypes.CDLL(None)
STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(BaseException):
    """The user or the system asked to stop (Ctrl-C, SIGTERM, SIGHUP). No error, so nothing may catch it by chance."""


@dataclass(frozen=True)
class Process:
    """One process of the site.

    ``ready`` gets what the process has written to its log so far and returns the sentence that is shown once it is
    ready, or an empty one. On SIGTERM it must stop within ``grace`` seconds or is killed, and ``killed`` says what that
    means. ``last`` processes are stopped when all others have ended.
    """

    name: str
    command: Sequence[str]
    env: Mapping[str, str]
    ready: Callable[[str], str]
    patience: float = 60.0
    grace: float = GRACE
    killed: str = "did not stop by itself: killed"
    remedy: str = "Start again; if it happens again, the log says why."
    last: bool = False


@dataclass
class Running:
    process: Process
    popen: subprocess.Popen[bytes]
    log: Path
    offset: int  # where this start's part of the log begins
    started: float

    def said(self) -> str:
        with self.log.open("rb") as handle:
            # A log that was moved away in the meantime is shorter than at the start.
            handle.seek(min(self.offset, self.log.stat().st_size))
            return handle.read().decode(errors="replace")

    def refusal(self, what: str) -> Refusal:
        lines = self.said().splitlines()[-LINES_SHOWN:]
        return Refusal(f"{self.process.name} {what}.", f"{self.process.remedy} The whole log: {self.log}", lines)


class Supervisor:
    """Owner of the site's processes. Use as a context manager: leaving it, by whatever way, stops them all."""

    def __init__(self, root: Path, logs: Path, mark: str) -> None:
        self.root = root
        self.logs = logs
        self.mark = mark
        self.running: list[Running] = []
        self._hurry = False

    def __enter__(self) -> Supervisor:
        # What loses its parent comes to us, not to a first process that may be none (in a container) that reaps.
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        janitor = [sys.executable, str(Path(__file__).with_name("janitor.py")), self.mark]
        self._janitor = subprocess.Popen(janitor, stdin=subprocess.PIPE, start_new_session=True)
        return self

    def __exit__(self, *_: object) -> None:
        former = {number: signal.signal(number, self._be_quick) for number in STOP_SIGNALS}
        say("\nStopping")
        self.stop()
        for number, handler in former.items():
            signal.signal(number, handler)

    def start(self, process: Process) -> Running:
        """Start a process in a session of its own, with its output in ``NAME.log``; does not wait for it."""
        log = self.logs / f"{process.name.replace(' ', '-')}.log"
        with log.open("ab") as output:
            offset = output.tell()
            popen = subprocess.Popen(
                process.command,
                cwd=self.root,
                env={**process.env, strays.MARK: self.mark},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for the supervisor, which stops its processes in order
            )
        running = Running(process, popen, log, offset, time.monotonic())
        self.running.append(running)
        return running

    def await_ready(self, running: Running) -> None:
        """Wait until the process is ready and say so. Raises ``Refusal`` if any process dies or patience ends."""
        while True:
            self.look()
            sentence = running.process.ready(running.said())
            elapsed = time.monotonic() - running.started
            if sentence:
                say(f"  {running.process.name:<18} {sentence} ({elapsed:.1f} s)")
                return
            if elapsed > running.process.patience:
                raise running.refusal(f"was not ready after {running.process.patience:.0f} s")
            time.sleep(POLL)

    def look(self) -> None:
        """Raise ``Refusal`` if a process has ended."""
        for running in self.running:
            status = running.popen.poll()
            if status is not None:
                raise running.refusal(f"has ended ({describe(status)})")

    def watch(self) -> NoReturn:
        """Run until a process dies (``Refusal``) or somebody asks to stop (``Interrupted``)."""
        polls = 0
        while True:
            self.look()
            if polls % LOG_LOOK == 0:
                for running in self.running:
                    limit(running.log)
            polls += 1
            time.sleep(POLL)

    def stop(self) -> None:
        """Stop all processes in order, kill those that do not stop, and end whatever they left."""
        for last in (False, True):
            group = [running for running in self.running if running.process.last is last]
            for running in group:
                _signal(running, signal.SIGTERM)
            asked = time.monotonic()
            while group := [running for running in group if running.popen.poll() is None]:
                for running in group:
                    if self._hurry or time.monotonic() > asked + running.process.grace:
                        say(f"  {running.process.name:<18} {running.process.killed}")
                        _signal(running, signal.SIGKILL)
                        running.popen.wait()
                time.sleep(0.05)
        self.running.clear()
        strays.end(self.mark, 0.0 if self._hurry else 2.0)
        _reap()
        self._janitor.communicate(b"stopped in order\n")

    def _be_quick(self, *_: object) -> None:
        self._hurry = True


def _reap() -> None:
    """Take leave of the orphans that have ended; the janitor lives on and stays."""
    try:
        while os.waitpid(-1, os.WNOHANG) != (0, 0):
            pass
    except ChildProcessError:
        return


def interrupt_on_signals() -> None:
    """From now on a request to stop raises ``Interrupted``, wherever the program stands. nohup stays what it is."""
    for number in STOP_SIGNALS:
        if number is not signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise Interrupted(signal.Signals(number).name)


def _signal(running: Running, number: signal.Signals) -> None:
    """SIGKILL goes to the whole group; any other signal to the first process, which knows how to stop its children."""
    if running.popen.poll() is not None:
        return
    if number is signal.SIGKILL:
        os.killpg(running.popen.pid, number)
    else:
        running.popen.send_signal(number)


def limit(log: Path, size: int = LOG_LIMIT) -> None:
    """Move a log that has grown over ``size`` bytes to ``NAME.log.1``. Its writer appends, so it goes on at the top."""
    if log.stat().st_size > size:
        shutil.copyfile(log, log.with_name(f"{log.name}.1"))
        os.truncate(log, 0)


def describe(status: int) -> str:
    """An exit status in words."""
    if status >= 0:
        return f"exit status {status}"
    hint = ", perhaps for lack of memory" if status == -signal.SIGKILL else ""
    return f"killed by {signal.Signals(-status).name}{hint}"
