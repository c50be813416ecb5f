"""This host as others see it: programs run by a changed user, or with less than we have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from evaluator.sandbox import find_bwrap
from evaluator.sandbox.runtime import PROJECT_ROOT


def readable_by_all() -> list[str]:
    """bubblewrap's options for a copy of this host's file tree in which the environment's folders can be passed."""
    needed = [Path(sys.base_prefix), Path(sys.prefix), PROJECT_ROOT]
    closed = {folder for path in needed for folder in path.parents if not folder.stat().st_mode & 0o001}
    outermost = [folder for folder in sorted(closed) if not closed & set(folder.parents)]
    options = ["--dev-bind", "/", "/"]
    for folder in outermost:
        options += ["--perms", "0755", "--tmpfs", str(folder)]
        for path in needed:
            if path.is_relative_to(folder):
                for parent in reversed(path.parents):
                    options += ["--perms", "0755", "--dir", str(parent)] if parent.is_relative_to(folder) else []
                options += ["--ro-bind", str(path), str(path)]
    return [*options, "--perms", "1777", "--tmpfs", "/mnt", "--setenv", "TMPDIR", "/mnt", "--chdir", str(PROJECT_ROOT)]


def run_python(arguments: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(find_bwrap()), *options, "--", *arguments],
        env={"PYTHONPATH": str(PROJECT_ROOT), "PYTHONDONTWRITEBYTECODE": "1", "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
