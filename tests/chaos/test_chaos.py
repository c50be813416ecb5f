"""A taste of chaos. The long form, ``python -m tests.chaos --runs 100``, stands in docs/reliability.md."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.chaos.cluster import ROOT


@pytest.mark.chaos
@pytest.mark.postgres
def test_every_submission_gets_one_verdict_whatever_dies() -> None:
    command = [sys.executable, "-m", "tests.chaos", "--runs", "1", "--seed", "1"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-6_000:]}\n{done.stderr[-6_000:]}"
