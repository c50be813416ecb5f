"""Configuration of gunicorn beyond its command line (``--config python:pkbsite.web_server``).

Each of its processes counts requests on its own; prometheus_client adds them up through files in a folder that is
empty at the start. The folder must be named before the first import of that package, so here.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any

FOLDER = "PROMETHEUS_MULTIPROC_DIR"


def on_starting(server: Any) -> None:
    os.environ[FOLDER] = tempfile.mkdtemp(prefix="pkb-metrics-")


def child_exit(server: Any, worker: Any) -> None:
    from prometheus_client import multiprocess  # only now: it reads the name of the folder on import

    multiprocess.mark_process_dead(worker.pid)  # type: ignore[no-untyped-call]


def on_exit(server: Any) -> None:
    shutil.rmtree(os.environ[FOLDER], ignore_errors=True)
