"""Folders of submissions: private, locked while their judge lives, removed by the next judge if it was killed."""

import os
import time
from pathlib import Path

import pytest

from evaluator.judge import arm


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def aged(folder: Path) -> Path:
    long_ago = time.time() - 3_600
    os.utime(folder, (long_ago, long_ago))
    return folder


def test_a_left_folder_is_removed_and_a_held_one_is_not(somewhere: Path) -> None:
    held, lock = arm.private_folder("candidate")
    left, dead = arm.private_folder("candidate")
    (left / "solution.py").write_text("x = 1\n")
    os.close(dead)  # as the kernel does when a judge ends
    for folder in (held, left):
        aged(folder)
    _, other = arm.private_folder("reference")
    assert held.is_dir()
    assert not left.exists()
    for descriptor in (lock, other):
        os.close(descriptor)


def test_a_folder_that_is_just_being_made_is_left_alone(somewhere: Path) -> None:
    young = somewhere / f"{arm.PREFIX}candidate-new"
    young.mkdir()
    os.close(arm.private_folder("candidate")[1])
    assert young.is_dir()


def test_nothing_but_folders_of_judges_is_touched(somewhere: Path) -> None:
    other = somewhere / "something-else"
    other.mkdir()
    aged(other)
    target = somewhere / "target"
    target.mkdir()
    link = somewhere / f"{arm.PREFIX}link"
    link.symlink_to(target)
    os.close(arm.private_folder("candidate")[1])
    assert other.is_dir()
    assert target.is_dir()
    assert link.is_symlink()


def test_the_job_can_read_its_folder_and_nobody_else_can_write_it() -> None:
    folder, lock = arm.private_folder("candidate")
    assert folder.stat().st_mode & 0o777 == 0o755
    os.close(lock)
