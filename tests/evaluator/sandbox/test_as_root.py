"""What is special when root starts jobs, and that an ordinary user's jobs are held as well.

Collected for root alone, see conftest.py; an ordinary user runs the other files as they are.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evaluator.sandbox import Sandbox, SandboxSpec, SandboxUnavailable, uids
from evaluator.sandbox.runtime import PROJECT_ROOT
from tests.evaluator.sandbox.hosts import readable_by_all, run_python

pytestmark = pytest.mark.sandbox

BECOME_NOBODY = """
import os, sys
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_the_battery_holds_for_an_ordinary_user_as_well() -> None:
    """The same files of tests, run by nobody: user namespace, no control group, stopping by signals."""
    here = Path(__file__).parent
    pytest_command = [sys.executable, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(PROJECT_ROOT)]
    pytest_command += ["--import-mode=importlib", "--noconftest", "-p", "no:django", "-p", "no:cacheprovider"]
    pytest_command += ["-W", "error", "-o", "markers=sandbox"]
    pytest_command += [str(here / name) for name in ("test_battery.py", "test_job.py", "test_freezing.py")]
    done = run_python([sys.executable, "-c", BECOME_NOBODY, *pytest_command], *readable_by_all())
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    summary = done.stdout.strip().splitlines()[-1]
    assert re.fullmatch(r"\d+ passed in .*", summary), summary
    assert int(summary.split()[0]) > 150


def test_root_that_may_not_mount_starts_jobs_as_an_ordinary_user() -> None:
    """Root in a container, without SYS_ADMIN: the job runs under a uid of its own in a user namespace."""
    program = """
from evaluator.sandbox import Sandbox, SandboxSpec
with Sandbox.start(SandboxSpec(argv=("sleep", "60"))) as sandbox:
    sandbox.freeze()
    sandbox.thaw()
    print(sandbox.isolation.mode, sandbox.isolation.uid, len(sandbox.members()))
"""
    done = run_python([sys.executable, "-c", program], *readable_by_all(), "--cap-drop", "CAP_SYS_ADMIN")
    assert done.returncode == 0, done.stderr
    mode, uid, members = done.stdout.split()
    assert (mode, members) == ("bwrap-user", "1")
    assert int(uid) >= uids.FIRST_UID


def test_two_jobs_of_root_have_uids_of_their_own_and_neither_is_root() -> None:
    spec = SandboxSpec(argv=("sleep", "60"))
    with Sandbox.start(spec) as one, Sandbox.start(spec) as other:
        pids = [one.members()[0], other.members()[0]]
        owners = [Path(f"/proc/{pid}").stat().st_uid for pid in pids]
        assert owners == [one.isolation.uid, other.isolation.uid]
        assert owners[0] != owners[1]
        assert all(uids.FIRST_UID <= uid < uids.FIRST_UID + uids.SLOTS for uid in owners)


def test_a_uid_under_which_something_runs_is_not_given_away() -> None:
    with Sandbox.start(SandboxSpec(argv=("true",))) as sandbox:
        free = sandbox.isolation.uid
    assert free is not None
    with subprocess.Popen(["sleep", "60"], user=free) as stray:
        with Sandbox.start(SandboxSpec(argv=("true",))) as sandbox:
            assert sandbox.isolation.uid != free
        stray.kill()


def test_no_uid_left_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uids, "SLOTS", 0)
    with pytest.raises(SandboxUnavailable, match="All 0 uids for jobs"):
        Sandbox.start(SandboxSpec(argv=("true",)))


def test_a_job_lives_in_a_control_group_that_goes_with_it() -> None:
    with Sandbox.start(SandboxSpec(argv=("sleep", "60"))) as sandbox:
        if not sandbox.isolation.cgroup:  # a host that lets root make none: nothing may be left there either
            assert sandbox.isolation.limits["stopping"] == "signals"
            return
        (line,) = [
            line for line in Path(f"/proc/{sandbox.members()[0]}/cgroup").read_text().splitlines() if line[:3] == "0::"
        ]
        name = Path(line[3:]).name
    assert name.startswith("pkb-sandbox-")
    assert not list(Path("/sys/fs/cgroup").rglob(name))
