"""A uid of its own for every job that is started as root, so that process limits (counted per uid) do not mix.

The range lies in what systemd documents as unused (60578 to 61183) and within 16 bits, so that it exists in containers
with a small id mapping too.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from evaluator.sandbox.policy import SandboxUnavailable

FIRST_UID = 60600
SLOTS = 64
LOCK_FOLDER = Path("/run/pkb-sandbox")


class UidSlot:
    """One uid, held until ``release`` or the end of this process."""

    def __init__(self, uid: int, lock: int) -> None:
        self.uid = uid
        self._lock: int | None = lock

    @classmethod
    def take(cls) -> UidSlot:
        """A uid that no other judge holds and under which nothing runs. Raises SandboxUnavailable if none is left."""
        try:
            LOCK_FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise SandboxUnavailable(
                f"The folder {LOCK_FOLDER} cannot be made: {error.strerror}.", "Let root write to it."
            ) from error
        busy = _uids_in_use()
        for uid in range(FIRST_UID, FIRST_UID + SLOTS):
            if uid in busy:
                continue
            lock = os.open(LOCK_FOLDER / str(uid), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(lock)
                continue
            return cls(uid, lock)
        raise SandboxUnavailable(
            f"All {SLOTS} uids for jobs ({FIRST_UID} to {FIRST_UID + SLOTS - 1}) are in use.",
            "Run fewer evaluations at once on this host, or end the processes that run under these uids.",
        )

    def release(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None


def _uids_in_use() -> set[int]:
    """Real uids of all processes; one that ends while we look uses none."""
    uids: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                status = (entry / "status").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            uids.update(int(line.split()[1]) for line in status.splitlines() if line.startswith("Uid:"))
    return uids
