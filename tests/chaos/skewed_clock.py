"""Runs a module with a wall clock that is wrong: ``python -m tests.chaos.skewed_clock SECONDS MODULE ARGUMENTS…``.

Stands in for a host whose clock jumped. Patched before anything else is imported, so that Celery, kombu and redis take
the wrong time, too, when they stamp and look for messages.
"""

from __future__ import annotations

import runpy
import sys
import time


def main() -> None:
    offset = float(sys.argv[1])
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + offset
    time.time_ns = lambda: right_ns() + int(offset * 1e9)
    module = sys.argv[2]
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
