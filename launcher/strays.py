"""Finds and ends what one start of ``./run`` left behind, by a mark in the environment of every process it started.

Process groups are not enough: Celery's pool, gunicorn's workers and the judge's jobs make groups and sessions of their
own, and children of a killed process go to init. The mark is inherited by all of them; what clears its environment
(the sandbox) is found as a descendant of a marked process.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

MARK = "PKB_RUN"  # environment variable; its value is drawn anew on every start
PROC = Path("/proc")


def marked(value: str) -> set[int]:
    """Process ids that carry the mark, and their descendants. Never the caller."""
    wanted = f"{MARK}={value}".encode()
    parents: dict[int, int] = {}
    found: set[int] = set()
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, parent = _state_and_parent(entry)
            environment = (entry / "environ").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue  # ended in the meantime
        except PermissionError:
            environment = b""  # somebody else's, or not dumpable: found by its parent if it is ours
        if state == "Z":
            continue
        parents[int(entry.name)] = parent
        if wanted in environment.split(b"\0"):
            found.add(int(entry.name))
    grew = True
    while grew:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        found |= children
        grew = bool(children)
    return found - {os.getpid()}


def end(value: str, grace: float) -> int:
    """End all processes with the mark: SIGTERM, after ``grace`` seconds SIGKILL. Returns how many there were at first.

    Raises ``RuntimeError`` if some live on 10 s after SIGKILL (stuck in the kernel).
    """
    first = alive = marked(value)
    _send(alive, signal.SIGTERM)
    deadline = time.monotonic() + grace
    while alive and time.monotonic() < deadline:
        time.sleep(0.1)
        alive = marked(value)
    deadline = time.monotonic() + 10
    while alive:
        if time.monotonic() > deadline:
            raise RuntimeError(f"processes {sorted(alive)} do not end, not even by SIGKILL")
        _send(alive, signal.SIGKILL)
        time.sleep(0.1)
        alive = marked(value)
    return len(first)


def _send(processes: set[int], number: int) -> None:
    for process in processes:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue  # ended by itself


def _state_and_parent(entry: Path) -> tuple[str, int]:
    # The second field is the command in parentheses and may hold anything.
    fields = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()
    return fields[0], int(fields[1])
