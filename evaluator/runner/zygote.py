"""The fork server: imports torch once and forks the ranks of every launch on the judge's command.

It runs no torch operation itself: a child of a process whose thread pools have started hangs in its first threaded
operation. It is not dumpable, so that no rank can read its memory or take its descriptors.

Commands on the control socket (see wire.py):
  launch  with five descriptors per rank (channel, log, dump, input region, output region): fork the ranks
  dump    make every living rank write the stacks of its threads to its dump pipe
  clear   reap what the judge has killed, empty the writable folders, and put back what the first launch has built
Told to the judge: up (torch is imported), exit (a rank ended, with status), cleared.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import selectors
import signal
import socket
import stat
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import rank as ranks
from .wire import MAX_FRAME, send, unpack

PR_SET_DUMPABLE = 4
DESCRIPTORS_PER_RANK = 5
BUILT_BYTES = 256 * 1024**2
BUILT_FILES = 5_000
LOCKS = ("lock", ".turn")
MAX_DESCRIPTORS = 16 * DESCRIPTORS_PER_RANK


class Zygote:
    """State of the fork server: its control socket and the ranks that live."""

    def __init__(self, control: socket.socket) -> None:
        self.control = control
        self.children: dict[int, tuple[int, int]] = {}  # pid -> launch, rank
        self.built: Built | None = None

    def serve(self) -> None:
        """Obeys the judge until it closes the control socket."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_read, False)
        os.set_blocking(wake_write, False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        selector = selectors.DefaultSelector()
        selector.register(self.control, selectors.EVENT_READ)
        selector.register(wake_read, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj is self.control:
                    packet, descriptors, _, _ = socket.recv_fds(self.control, MAX_FRAME + 1, MAX_DESCRIPTORS)
                    if not packet:
                        return
                    self.obey(unpack(packet), descriptors)
                else:
                    os.read(wake_read, 4096)
                    self.reap()

    def obey(self, command: dict[str, Any], descriptors: list[int]) -> None:
        match command["do"]:
            case "launch":
                self.fork_ranks(command, descriptors)
            case "dump":
                for pid in self.children:
                    os.kill(pid, signal.SIGUSR1)
            case "clear":
                self.reap()
                if self.built is None:
                    self.built = Built.found_in(command["built"])
                for folder in command["folders"]:
                    empty(folder, keep=command["keep"])
                self.built.put_back()
                send(self.control, {"is": "cleared", "nonce": command["nonce"]})
            case other:
                raise ValueError(f"unknown command {other!r}")

    def fork_ranks(self, command: dict[str, Any], descriptors: list[int]) -> None:
        shares = [
            descriptors[first : first + DESCRIPTORS_PER_RANK]
            for first in range(0, len(descriptors), DESCRIPTORS_PER_RANK)
        ]
        for rank, share in enumerate(shares):
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                self.control.close()
                for other, theirs in enumerate(shares):
                    for descriptor in theirs if other != rank else ():
                        os.close(descriptor)
                ranks.live(rank, command, share)
            self.children[pid] = (command["launch"], rank)
        for descriptor in descriptors:
            os.close(descriptor)

    def reap(self) -> None:
        """Reports every rank that has ended."""
        while self.children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            launch, rank = self.children.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            send(self.control, {"is": "exit", "launch": launch, "rank": rank, "status": code})


@dataclass(frozen=True)
class Built:
    """What compilers have left in some folders: contents, modes and times, by path.

    Taken once, after the first launch, and put back before each later one: so nothing needs to be compiled again, and
    nothing else that a launch has written reaches the next.
    """

    files: dict[str, tuple[bytes, int, int]]

    @classmethod
    def found_in(cls, folders: list[str]) -> Built:
        """The regular files below the folders; none at all if they are more than a compiler leaves."""
        files: dict[str, tuple[bytes, int, int]] = {}
        room = BUILT_BYTES
        for folder in folders:
            if Path(folder).is_symlink():
                continue
            for path in sorted(Path(folder).rglob("*")):
                try:
                    status = path.lstat()
                    if not stat.S_ISREG(status.st_mode) or path.name in LOCKS:
                        continue
                    room -= status.st_size
                    if room < 0 or len(files) >= BUILT_FILES:
                        return cls({})
                    files[str(path)] = (path.read_bytes(), stat.S_IMODE(status.st_mode), status.st_mtime_ns)
                except OSError:
                    continue  # a rank may have made any mess in it
        return cls(files)

    def put_back(self) -> None:
        for path, (content, mode, changed) in self.files.items():
            file = Path(path)
            with contextlib.suppress(OSError):
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
                file.chmod(mode)
                os.utime(file, ns=(changed, changed))


def empty(folder: str, *, keep: list[str]) -> None:
    """Removes what lies in a folder but the paths in ``keep`` and what is mounted there (the runtime may be).

    A rank may have made any mess in it: what cannot be removed stays.
    """
    device = Path(folder).stat().st_dev
    found, waiting = [], [folder]
    while waiting:
        with contextlib.suppress(OSError), os.scandir(waiting.pop()) as entries:
            for entry in entries:
                if entry.path in keep or entry.stat(follow_symlinks=False).st_dev != device:
                    continue
                if entry.is_dir(follow_symlinks=False):
                    with contextlib.suppress(OSError):
                        Path(entry.path).chmod(0o700)
                    found.append(entry.path)
                    waiting.append(entry.path)
                else:
                    with contextlib.suppress(OSError):
                        Path(entry.path).unlink()
    for path in reversed(found):  # parents were found before what is in them
        with contextlib.suppress(OSError):
            Path(path).rmdir()


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_DUMPABLE) failed")
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)

    import torch
    import torch.distributed

    gc.collect()
    gc.freeze()  # what is there now is shared with every rank and never collected
    python = ".".join(map(str, sys.version_info[:3]))
    send(control, {"is": "up", "torch": torch.__version__, "python": python})
    Zygote(control).serve()


if __name__ == "__main__":
    main()
