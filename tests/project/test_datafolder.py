"""The data folder of ./run: one run at a time, recovery after a kill, secrets that only the owner reads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import strays
from launcher.console import Refusal
from launcher.datafolder import DataFolder


def test_a_second_run_on_the_same_folder_is_refused_and_told_who_has_it(tmp_path: Path) -> None:
    lock = DataFolder.open(tmp_path).lock()
    lock.describe("http://localhost:8123")
    with pytest.raises(Refusal) as refusal:
        DataFolder.open(tmp_path).lock()
    assert f"process {os.getpid()} (http://localhost:8123)" in refusal.value.what
    assert "--data" in refusal.value.remedy
    lock.release()
    DataFolder.open(tmp_path).lock().release()


def test_a_run_that_was_killed_leaves_a_folder_that_can_be_taken_and_its_strays_are_ended(tmp_path: Path) -> None:
    lock = DataFolder.open(tmp_path).lock()
    lock.describe("http://localhost:8000")
    lock.handle.close()  # as the kernel does when the process dies; the description stays
    command = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(command, env={**os.environ, strays.MARK: lock.mark}) as stray:
        following = DataFolder.open(tmp_path).lock()
        assert stray.wait(timeout=10) != 0
    assert following.mark != lock.mark
    following.release()


def test_secrets_are_made_once_and_are_the_owners_alone(tmp_path: Path) -> None:
    data = DataFolder.open(tmp_path / "data")
    first = data.secret("secret_key")
    assert len(first) == 64
    assert data.secret("secret_key") == first
    assert data.secret("worker_key") != first
    assert (data.path / "secret_key").stat().st_mode & 0o777 == 0o600
    assert data.path.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(Refusal, match="cannot be written") as refusal:
        DataFolder.open(tmp_path / "file" / "data")
    assert "--data" in refusal.value.remedy
