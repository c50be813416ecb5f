"""The virtual environment of ./run and ./test: installed once, again when a lock changes, with words when pip fails."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

from launcher import environment
from launcher.console import Refusal

LAUNCHER = environment.ROOT / "launcher"
PLAIN = ("processes", "environment", "__init__")  # of pkbsite: data that the launcher reads


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with locks of its own and an environment that has pip: that of the tests, under another name."""
    (tmp_path / "requirements").mkdir()
    (tmp_path / "launcher").mkdir()
    for name in ("run.txt", "torch-cpu.txt", "dev.txt"):
        (tmp_path / "requirements" / name).write_text("# lock\nsix==1.17.0\n")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    interpreter = tmp_path / ".venv" / "bin" / "python"
    interpreter.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    interpreter.chmod(0o755)
    monkeypatch.setattr(environment, "ROOT", tmp_path)
    monkeypatch.setattr(environment, "VENV", tmp_path / ".venv")
    monkeypatch.delenv("PKB_VENV", raising=False)
    return tmp_path


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The locks that were handed to pip, one list a call."""
    calls: list[list[str]] = []
    monkeypatch.setattr(
        environment, "install", lambda python, locks, *options: calls.append([lock.name for lock in locks])
    )
    return calls


def test_what_is_installed_is_not_installed_again(checkout: Path, installed: list[list[str]]) -> None:
    environment.prepare("run")
    environment.prepare("run")
    assert installed == [["run.txt", "torch-cpu.txt"]]


def test_a_changed_lock_is_installed(checkout: Path, installed: list[list[str]]) -> None:
    environment.prepare("run")
    (checkout / "requirements" / "run.txt").write_text("# lock\nsix==1.16.0\n")
    environment.prepare("run")
    assert len(installed) == 2


def test_the_environment_of_the_tests_serves_the_site_too(checkout: Path, installed: list[list[str]]) -> None:
    environment.prepare("dev")
    environment.prepare("run")
    assert installed == [["dev.txt"]]


def test_a_failed_install_is_tried_again(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / "requirements" / "run.txt").write_text("# lock\nsix==0.0.0.1\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    for _ in range(2):
        with pytest.raises(Refusal) as refusal:
            environment.prepare("run")
        assert refusal.value.what == "pip failed (exit status 1)."
        assert any("No matching distribution found for six==0.0.0.1" in line for line in refusal.value.evidence)
        assert "PYTHON=python3.11" in refusal.value.remedy
    assert not (checkout / ".venv" / environment.STAMP).exists()


@pytest.mark.parametrize(
    ("line", "remedy"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "disk space"),
        ("WARNING: Retrying after connection broken by 'NewConnectionError(...)'", "network"),
        ("error: something else", "pip's lines"),
    ],
)
def test_the_remedy_fits_what_pip_said(checkout: Path, monkeypatch: pytest.MonkeyPatch, line: str, remedy: str) -> None:
    pip = checkout / ".venv" / "bin" / "python"
    pip.write_text(f'#!/bin/sh\ncase "$1" in -c) echo 3.11.7;; *) echo "{line}"; exit 1;; esac\n')
    with pytest.raises(Refusal) as refusal:
        environment.prepare("run")
    assert remedy in refusal.value.remedy
    assert line in refusal.value.evidence


def test_an_environment_named_by_the_user_is_used_as_it_is(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, installed: list[list[str]]
) -> None:
    monkeypatch.setenv("PKB_VENV", sys.prefix)
    assert environment.prepare("dev") == Path(sys.prefix) / "bin" / "python"
    assert installed == []


def test_a_python_without_venv_and_pip_is_told_what_to_install(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(Refusal, match="neither the venv module nor pip") as refusal:
        environment.create(checkout / "new")
    assert "apt install python3-venv" in refusal.value.remedy


def test_the_launcher_needs_nothing_but_the_standard_library() -> None:
    """It runs before anything is installed; the list of processes and settings is plain data in pkbsite."""
    allowed = set(sys.stdlib_module_names) | {"launcher"}
    for file in [*LAUNCHER.glob("*.py"), *(environment.ROOT / "pkbsite" / f"{name}.py" for name in PLAIN)]:
        for node in ast.walk(ast.parse(file.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                names = [node.module or ""]
            foreign = {name.split(".")[0] for name in names} - allowed
            assert foreign <= {"pkbsite"}, f"{file.name} imports {foreign}"
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(environment.ROOT)!r})\n"]
    command[-1] += "import launcher.site, launcher.checks"
    subprocess.run(command, check=True)


def test_the_stamp_is_readable_text(checkout: Path, installed: list[list[str]]) -> None:
    environment.prepare("dev")
    assert set(json.loads((checkout / ".venv" / environment.STAMP).read_text())) == {"run", "dev"}
