"""The virtual environment that ``./run`` and ``./test`` share: made with pip alone, filled from the locks.

The locks agree with each other (requirements/lock.py), so the environment of ``./test`` is that of ``./run`` and more.
The project itself is not installed into it: nothing of it can be imported from inside the sandbox.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import json
import os
import queue
import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from launcher.console import ProgressLine, Refusal, say

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BOOTSTRAP = ROOT / ".bootstrap"
LOCKS = {"run": ("run.txt", "torch-cpu.txt"), "dev": ("dev.txt",)}
STAMP = "pkb-installed.json"
PIP_LINES_KEPT = 15


def python() -> Path:
    """The interpreter of the environment: of the folder in ``PKB_VENV`` if set, else of ``.venv``."""
    return Path(os.environ.get("PKB_VENV") or VENV) / "bin" / "python"


def prepare(purpose: str) -> Path:
    """Make the environment hold what ``purpose`` ('run' or 'dev') needs and return its interpreter.

    An environment named by ``PKB_VENV`` is used as it is: nothing is installed into it. Raises ``Refusal`` if there is
    no way to make the environment or pip fails.
    """
    if os.environ.get("PKB_VENV"):
        if not python().exists():
            raise Refusal(f"PKB_VENV names {python().parent.parent}, where there is no bin/python.", "Unset PKB_VENV.")
        return python()
    with _alone():
        return _prepared(purpose)


@contextmanager
def _alone() -> Iterator[None]:
    """Keeps other starts from installing into the same environment meanwhile; they wait."""
    descriptor = os.open(ROOT / "launcher", os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another ./run or ./test is preparing the environment; waiting for it")
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _prepared(purpose: str) -> Path:
    version = _version(python())
    if not version:
        create(VENV)
        version = _version(python())
    stamp = VENV / STAMP
    installed = json.loads(stamp.read_text()) if stamp.exists() else {}
    wanted = digest(purpose, version)
    if wanted not in installed.values():
        install(python(), _locks(purpose))
        # The locks are solved together. After a change of one, what the stamp says of the other is void: its command
        # looks again, which takes pip a second where nothing changed.
        installed = {purpose: wanted}
        if purpose == "dev":
            installed["run"] = digest("run", version)
        stamp.write_text(json.dumps(installed))
    return python()


def _locks(purpose: str) -> list[Path]:
    return [ROOT / "requirements" / name for name in LOCKS[purpose]]


def digest(purpose: str, version: str) -> str:
    """sha256 over the contents of the locks and the version of the interpreter that they are installed for."""
    return hashlib.sha256(b"".join(lock.read_bytes() for lock in _locks(purpose)) + version.encode()).hexdigest()


def create(folder: Path) -> None:
    """Make a virtual environment with pip in it, with the venv module or, where that is missing, with virtualenv."""
    say(f"Making the virtual environment {folder.name} with Python {sys.version.split()[0]}")
    if importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip"):
        command, environment = [sys.executable, "-m", "venv", "--clear", str(folder)], dict(os.environ)
    else:
        command, environment = _virtualenv(folder)
    finished = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if finished.returncode != 0:
        raise Refusal(
            f"the virtual environment could not be made (exit status {finished.returncode}).",
            "See that the folder is writable and the disk not full; then start again.",
            (finished.stdout + finished.stderr).splitlines()[-PIP_LINES_KEPT:],
        )


def _virtualenv(folder: Path) -> tuple[list[str], dict[str, str]]:
    """Command and environment that make ``folder`` with virtualenv, installed by pip into a folder of its own."""
    if importlib.util.find_spec("pip") is None:
        raise Refusal(
            f"{sys.executable} has neither the venv module nor pip.",
            "Install one: 'apt install python3-venv' on Debian and Ubuntu, 'dnf install python3-pip' on Fedora.",
        )
    say(f"{sys.executable} comes without its venv module; virtualenv takes its place, in {BOOTSTRAP.name}")
    install(Path(sys.executable), [ROOT / "requirements" / "bootstrap.txt"], "--upgrade", "--target", str(BOOTSTRAP))
    return (
        [sys.executable, "-m", "virtualenv", "--quiet", "--clear", "--no-download", str(folder)],
        {**os.environ, "PYTHONPATH": str(BOOTSTRAP)},
    )


def install(interpreter: Path, locks: list[Path], *options: str) -> None:
    """Install the locks with the pip of ``interpreter`` and show how far it is. Raises ``Refusal`` if pip fails."""
    total = len({line for lock in locks for line in lock.read_text().splitlines() if not line.startswith("#")})
    command = [str(interpreter), "-m", "pip", "install", "--no-input", "--disable-pip-version-check"]
    command += ["--progress-bar=off", *options]
    for lock in locks:
        command += ["--requirement", str(lock)]
    progress = ProgressLine(f"Installing {total} packages")
    last: deque[str] = deque(maxlen=PIP_LINES_KEPT)
    found: set[str] = set()
    doing = "asking the index"
    with _started(command) as process:
        for line in _lines(process):
            if line:
                last.append(line)
            started = re.match(r"\s*(Collecting|Downloading|Installing collected packages)[: ]+(\S+)", line)
            if started and started[1] == "Collecting":
                found.add(started[2])
            if started:
                doing = "unpacking" if started[1].startswith("Installing") else f"{started[1].lower()} {started[2]}"
            progress.show(f"{len(found)} of {total}, {doing}")
    if process.returncode != 0:
        raise Refusal(f"pip failed (exit status {process.returncode}).", _remedy(last), last)
    progress.done("done")


@contextmanager
def _started(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The running command; it has ended when the block has, by itself or, if the block is left early, with it."""
    pipe, both = subprocess.PIPE, subprocess.STDOUT
    with subprocess.Popen(command, stdout=pipe, stderr=both, text=True, env=_pip_env()) as process:
        try:
            yield process
        except BaseException:
            process.terminate()
            raise


def _pip_env() -> Mapping[str, str]:
    """The user's settings of pip (index, proxy, certificates) count, but none that installs somewhere else."""
    return {name: value for name, value in os.environ.items() if name not in {"PIP_USER", "PIP_TARGET", "PIP_PREFIX"}}


def _lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Lines of the process's output; an empty one whenever it has been silent for a second."""
    lines: queue.Queue[str | None] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line.rstrip("\n"))
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    while True:
        try:
            line = lines.get(timeout=1.0)
        except queue.Empty:
            yield ""
            continue
        if line is None:
            return
        yield line


def _remedy(last: deque[str]) -> str:
    text = "\n".join(last)
    if "No space left" in text:
        return "Free disk space (the environment needs about 2 GB) and start again; it continues where it was."
    if "No matching distribution" in text or "Could not find a version" in text:
        return (
            f"There is no build of that package for Python {sys.version.split()[0]} on this machine, or the index is "
            "out of reach. Python 3.11 to 3.14 have all of them: name one with PYTHON=python3.11 before the command; "
            "behind a proxy set PIP_INDEX_URL and HTTPS_PROXY."
        )
    if re.search(r"ConnectionError|NewConnectionError|timed out|Temporary failure|SSLError|ProxyError", text):
        return "The package index is out of reach: look at the network, PIP_INDEX_URL and HTTPS_PROXY; start again."
    return "Read pip's lines above. Deleting the folder .venv makes the next start begin afresh."


def _version(interpreter: Path) -> str:
    """Version of an environment's interpreter; empty if there is none or it has lost its packages (upgraded system)."""
    if not interpreter.exists():
        return ""
    script = "import sys, pip; print(sys.version.split()[0] if sys.version_info >= (3, 11) else '')"
    answer = subprocess.run([str(interpreter), "-c", script], capture_output=True, text=True, check=False)
    return answer.stdout.strip() if answer.returncode == 0 else ""
