"""Write the lock files beside this one from the extras in pyproject.toml: ``python requirements/lock.py [--upgrade]``.

Needs pip-tools (``pip install -r requirements/dev.txt``). ``dev.txt`` is solved first and holds everything; the other
files are solved under it as a constraint, so that a package has one version wherever it is installed. torch is kept in
``torch-cpu.txt`` alone: a GPU host brings the build that fits its driver. Locks carry no index, no link and no path, so
that they install from whichever index pip is set up for.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
PYPROJECT = HERE.parent / "pyproject.toml"

# File -> (extras of pyproject.toml, who installs it).
LOCKS: dict[str, tuple[tuple[str, ...], str]] = {
    "dev.txt": (("web", "worker", "local", "torch", "dev"), "./test: everything"),
    "run.txt": (("web", "worker", "local"), "./run: web host, evaluation worker and embedded broker on one machine"),
    "web.txt": (("web",), "web hosts: no torch"),
    "worker.txt": (("worker",), "GPU hosts: no Django, and no torch, which the host brings itself"),
    "torch-cpu.txt": (("torch",), "./run and ./test: torch for the target cpu-gloo"),
    "bootstrap.txt": (("bootstrap",), "./run and ./test where Python comes without its venv module"),
}

# Wanted by interpreters other than the one that solves: pip-compile leaves out lines whose marker is false here.
OTHER_INTERPRETERS = {'async-timeout==5.0.1 ; python_full_version < "3.11.3"': "redis"}

# The release of torch for the CPU lane. Its own requirements are solved with it.
TORCH = "torch==2.13.0"


def solve(extras: tuple[str, ...], constraints: Path, previous: Path, upgrade: bool) -> str:
    """Solve the extras under the constraints; versions in the file ``previous`` are kept where they still fit.

    Raises ``subprocess.CalledProcessError`` if there is no solution; pip-compile has said why on standard error.
    """
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder) / "lock.txt"
        if previous.exists() and not upgrade:
            output.write_text(previous.read_text())
        command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--no-header", "--strip-extras"]
        command += ["--no-emit-index-url", "--no-emit-find-links", "--no-emit-trusted-host", "--allow-unsafe"]
        command += ["--annotation-style=line", f"--constraint={constraints}", f"--output-file={output}"]
        command += [f"--extra={extra}" for extra in extras] + [str(PYPROJECT)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        return output.read_text()


def tidy(solved: str) -> str:
    """Keep the pins alone: no comments of the solver, no local version (``+cpu``), no NVIDIA parts of a CUDA build."""
    pins = [line.split("#")[0].strip() for line in solved.splitlines()]
    pins = [re.sub(r"\+[\w.]+", "", pin) for pin in pins if pin]
    return "\n".join(pin for pin in pins if not re.match(r"(nvidia-|cuda-|triton\b)", pin))


def main() -> int:
    upgrade = "--upgrade" in sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        constraints = Path(folder) / "constraints.txt"
        constraints.write_text(TORCH + "\n")
        for name, (extras, purpose) in LOCKS.items():
            pins = tidy(solve(extras, constraints, HERE / name, upgrade))
            others = [pin for pin, needed_by in OTHER_INTERPRETERS.items() if f"\n{needed_by}==" in f"\n{pins}"]
            header = f"# Written by requirements/lock.py from pyproject.toml. For {purpose}.\n"
            (HERE / name).write_text(header + "\n".join(sorted([*pins.splitlines(), *others])) + "\n")
            if name == "dev.txt":
                constraints.write_text(f"{TORCH}\n{pins}\n")
            print(f"{name}: {len(pins.splitlines())} packages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
