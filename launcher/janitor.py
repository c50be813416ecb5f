"""Waits for the death of ``./run`` and then ends everything that it started: ``python -m launcher.janitor MARK``.

``./run`` holds the other end of this process's standard input. After an orderly stop it writes a line; if the input
ends without one, ``./run`` was killed (SIGKILL, out of memory) and could not clean up by itself.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

if not __package__:
    sys.path[0] = str(Path(__file__).resolve().parent.parent)

from launcher import strays

GRACE = 5.0  # seconds between SIGTERM and SIGKILL


def main() -> int:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if not sys.stdin.readline():
        strays.end(sys.argv[1], GRACE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
