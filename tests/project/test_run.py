"""./run as a person starts it, in a copy of the checkout: it comes up, says what is ready, leaves nothing behind."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from launcher import network, strays

pytestmark = pytest.mark.sandbox

ROOT = Path(__file__).resolve().parents[2]
START_LIMIT = 120.0  # seconds until the site must be ready, on a machine that does other things too
IDLE_LIMIT = 1_500_000  # kB of the whole site, shared pages counted once


class Run:
    """One ``./run`` with what it has printed."""

    def __init__(self, checkout: Path, port: int) -> None:
        kept_out = {"SECRET_KEY", "PKB_DATA", "DATABASE_URL", "REDIS_URL"}
        env = {name: value for name, value in os.environ.items() if name not in kept_out}
        self.checkout = checkout
        self.output = checkout / "output.txt"
        with self.output.open("w") as output:
            self.popen = subprocess.Popen(
                [str(checkout / "run"), "--port", str(port)],
                # Without canaries: one would take its turn before the files of the test.
                env={**env, "PKB_VENV": sys.prefix, "PYTHON": sys.executable, "PKB_CANARY_SECONDS": "0"},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.port = port

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + START_LIMIT
        while text not in self.output.read_text():
            assert self.popen.poll() is None, self.output.read_text()
            assert time.monotonic() < deadline, self.output.read_text()
            time.sleep(0.2)

    @property
    def mark(self) -> str:
        return str(json.loads((self.checkout / "data" / "run.lock").read_text())["mark"])


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    not_needed = {"data", "staticfiles", "tests"}

    def left_out(folder: str, names: list[str]) -> set[str]:
        hidden = {name for name in names if name.startswith(".") or name == "__pycache__"}
        return hidden | (not_needed & set(names) if Path(folder) == ROOT else set())

    return Path(shutil.copytree(ROOT, tmp_path / "checkout", ignore=left_out))


@pytest.fixture
def start(checkout: Path) -> Iterator[Callable[[int], Run]]:
    """Starts ./run on a port; whatever still runs at the end is stopped."""
    runs: list[Run] = []

    def start(port: int) -> Run:
        runs.append(Run(checkout, port))
        return runs[-1]

    yield start
    for run in runs:
        if run.popen.poll() is None:
            run.popen.send_signal(signal.SIGINT)
            run.popen.wait(timeout=30)


def memory(processes: set[int]) -> int:
    """Proportional set size of the processes together, in kB."""
    texts = [Path(f"/proc/{process}/smaps_rollup").read_text() for process in processes]
    return sum(int(size) for text in texts for size in re.findall(r"^Pss: +(\d+)", text, re.MULTILINE))


def test_from_an_empty_folder_to_an_open_page_and_back_to_nothing(start: Callable[[int], Run]) -> None:
    run = start(network.free_port())
    run.wait_for("Ctrl-C stops the site")
    said = run.output.read_text()
    for name in ("broker", "web", "results", "beat", "housekeeping", "evaluation"):
        assert re.search(rf"^  {name} +ready", said, re.MULTILINE), said
    assert network.get("127.0.0.1", run.port, "/readyz") == (
        200,
        '{"database": "ok", "migrations": "ok", "broker": "ok"}',
    )
    assert network.get("127.0.0.1", run.port, "/")[0] == 200
    assert said.count("one-time password") == 1
    mark = run.mark
    assert memory(strays.marked(mark)) < IDLE_LIMIT

    second = start(network.free_port())
    assert second.popen.wait(timeout=30) == 1
    assert f"in use by process {run.popen.pid}" in second.output.read_text()

    run.popen.send_signal(signal.SIGINT)
    assert run.popen.wait(timeout=30) == 0
    assert not strays.marked(mark)

    third = start(run.port)
    third.wait_for("Ctrl-C stops the site")
    assert "one-time password" not in third.output.read_text()
    worker = next(process for process in strays.marked(third.mark) if b"evaluator.worker" in _command(process))
    mark = third.mark
    os.kill(worker, signal.SIGKILL)
    assert third.popen.wait(timeout=30) == 1
    said = third.output.read_text()
    assert "Stopped: evaluation has ended (killed by SIGKILL" in said
    assert "What to do:" in said
    assert not strays.marked(mark)


def _command(process: int) -> bytes:
    return Path(f"/proc/{process}/cmdline").read_bytes()
