"""The data folder of ``./run``: database, secrets, the broker's files, logs, and the lock against a second run."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from launcher import strays
from launcher.console import Refusal, say

STRAY_GRACE = 5.0  # seconds that the left-over processes of a killed run get to end by themselves


@dataclass
class DataFolder:
    """Paths and secrets of one data folder. Secrets are made on first use and readable by the owner only."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> DataFolder:
        """Make the folder if need be. Raises ``Refusal`` if it cannot be written."""
        try:
            for folder in (path, path / "logs", path / "broker"):
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            (path / "run.lock").touch(mode=0o600)
        except OSError as error:
            remedy = "Name a folder that you may write, with --data FOLDER."
            raise Refusal(f"the data folder {path} cannot be written ({error.strerror}).", remedy) from error
        return cls(path.resolve())

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def secret(self, name: str) -> str:
        """A random text of 64 characters, kept in a file of that name."""
        file = self.path / name
        try:
            descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        except FileExistsError:
            return file.read_text().strip()
        with os.fdopen(descriptor, "w") as handle:
            handle.write(secrets.token_hex(32) + "\n")
        return file.read_text().strip()

    def lock(self) -> RunLock:
        """Take the folder; end what a killed former run left in it. Raises ``Refusal`` if another run has it."""
        handle = (self.path / "run.lock").open("r+")
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = json.loads(handle.read() or "{}")
            handle.close()
            raise Refusal(
                f"the data folder {self.path} is in use by process {holder.get('process', '?')}"
                f" ({holder.get('address', 'starting')}).",
                "Use that site, stop it with Ctrl-C, or start a second one with --data OTHER_FOLDER --port OTHER_PORT.",
            ) from error
        former = json.loads(handle.read() or "{}")
        if former and (ended := strays.end(former["mark"], STRAY_GRACE)):
            say(f"The last run was killed; ended {ended} processes that it left.")
        return RunLock(handle, secrets.token_hex(16))


@dataclass
class RunLock:
    """Holds the data folder. The kernel drops the lock when this process ends, however it ends."""

    handle: IO[str]
    mark: str

    def describe(self, address: str) -> None:
        """Write down who runs, for the next start."""
        self._write(json.dumps({"process": os.getpid(), "mark": self.mark, "address": address}))

    def release(self) -> None:
        """After an orderly stop: nothing is left to be ended."""
        self._write("")
        self.handle.close()

    def _write(self, text: str) -> None:
        self.handle.seek(0)
        self.handle.truncate()
        self.handle.write(text)
        self.handle.flush()
