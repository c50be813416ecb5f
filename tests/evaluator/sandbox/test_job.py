"""The judge's hold over a job: limits that name themselves, stopping, killing, ending with the judge."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from evaluator.sandbox import (
    Bind,
    ResourceLimits,
    Sandbox,
    SandboxLeftovers,
    SandboxSpec,
    SandboxUnavailable,
    python_command,
)
from evaluator.sandbox.policy import SeccompProfile
from evaluator.sandbox.runtime import PROJECT_ROOT
from tests.evaluator.sandbox.jobs import SLEEPS, SMALL, marked_processes, start

pytestmark = pytest.mark.sandbox

# Limits. Each program breaks one; the job must be killed for that one, and the number must be over the limit.

FORK_BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
THREAD_BOMB = """
import threading, time
while True:
    try:
        threading.Thread(target=time.sleep, args=(600,)).start()
    except RuntimeError:
        time.sleep(0.1)
"""
MEMORY_BOMB = """
import time
kept = []
for _ in range(40):
    kept.append(b"x" * 2**24)
time.sleep(600)
"""
MEMORY_SPREAD_OVER_PROCESSES = """
import os, time
for _ in range(4):
    if os.fork() == 0:
        kept = b"x" * (80 * 2**20)
        time.sleep(600)
time.sleep(600)
"""
# Shared pages that are in no process's figures: touched, then dropped from the page table.
HIDDEN_MEMORY = """
import mmap, time
kept = []
for _ in range(40):
    region = mmap.mmap(-1, 2**24)
    region.write(b"x" * 2**24)
    region.madvise(mmap.MADV_DONTNEED)
    kept.append(region)
time.sleep(600)
"""
ENDLESS_OUTPUT = """
import os
while True:
    os.write(1, b"spam " * 10000)
"""


@pytest.mark.parametrize(
    ("program", "kind"),
    [
        pytest.param(FORK_BOMB, "processes", id="fork bomb"),
        pytest.param(THREAD_BOMB, "processes", id="thread bomb"),
        pytest.param(MEMORY_BOMB, "memory", id="memory bomb"),
        pytest.param(MEMORY_SPREAD_OVER_PROCESSES, "memory", id="memory spread over processes"),
        pytest.param(ENDLESS_OUTPUT, "output", id="endless output"),
    ],
)
def test_a_broken_limit_ends_the_job_and_is_named(program: str, kind: str) -> None:
    with start(program) as sandbox:
        assert sandbox.wait(20) == 128 + signal.SIGKILL
        assert sandbox.violation is not None
        assert sandbox.violation.kind == kind
        assert sandbox.violation.value > sandbox.violation.limit
        assert len(sandbox.output()) <= SMALL.output_tail_bytes
    assert sandbox.members() == []


def test_hidden_shared_memory_of_a_gpu_job_is_found_in_the_machines_figure() -> None:
    """CUDA may need such pages; jobs without it cannot have them, see the battery."""
    spec = SandboxSpec(argv=python_command("-c", HIDDEN_MEMORY), limits=SMALL, seccomp_profile="cuda")
    with Sandbox.start(spec) as sandbox:
        assert sandbox.wait(20) == 128 + signal.SIGKILL
        assert sandbox.violation is not None
        assert sandbox.violation.kind == "shared memory"


def test_memory_that_processes_share_counts_once() -> None:
    """Four forked ranks that only read 120 MiB of their parent stay under a limit of 200 MiB."""
    program = """
import os, time
kept = b"x" * (120 * 2**20)
for _ in range(4):
    if os.fork() == 0:
        assert kept.count(b"x") == len(kept)
        time.sleep(1.2)
        os._exit(0)
for _ in range(4):
    os.wait()
print("done")
"""
    with start(program) as sandbox:
        assert sandbox.wait(20) == 0, sandbox.violation
        assert sandbox.output() == "done\n"


# Output and exit status.


@pytest.mark.parametrize(
    ("program", "status"),
    [("raise SystemExit(3)", 3), ("pass", 0), ("import os; os.kill(os.getpid(), 11)", 128 + 11), ("1/0", 1)],
)
def test_exit_status(program: str, status: int) -> None:
    with start(program) as sandbox:
        assert sandbox.wait(10) == status
        assert sandbox.violation is None


def test_output_of_all_processes_is_kept_and_input_is_empty() -> None:
    program = "import os, sys; print(repr(sys.stdin.read()), flush=True); os.system('echo from a child >&2')"
    with start(program) as sandbox:
        sandbox.wait(10)
        assert sandbox.output() == "''\nfrom a child\n"


def test_wait_gives_none_while_the_job_runs() -> None:
    with start(SLEEPS) as sandbox:
        assert sandbox.wait(0.05) is None


# Killing.


def test_kill_leaves_nothing_not_even_daemons() -> None:
    """Children in sessions of their own, orphaned, deaf to SIGTERM: all gone when kill returns, and no descriptor."""
    mark = f"mark-{secrets.token_hex(8)}"
    program = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]], start_new_session=True)
        os._exit(0)
    os.wait()
print("ready", flush=True)
time.sleep(600)
"""
    descriptors = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with start(program, mark) as sandbox:
        deadline = time.monotonic() + 10
        while sandbox.output() != "ready\n" and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(sandbox.members()) == 4
        assert len(marked_processes(mark)) >= 4
        sandbox.kill()
        assert marked_processes(mark) == []
        sandbox.kill()  # again: nothing to do
    assert len(os.listdir("/proc/self/fd")) == descriptors  # noqa: PTH208
    assert not any(thread.name == "sandbox" for thread in threading.enumerate())


@pytest.mark.parametrize(("profile", "seconds"), [("cpu", 10), ("cuda", 60)])
def test_what_outlives_sigkill_gets_the_time_that_its_kind_needs(
    profile: SeccompProfile, seconds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver of a GPU ends a killed job slowly. Here the wait for the end sees nothing, and at once."""
    spec = SandboxSpec(argv=python_command("-c", SLEEPS), limits=SMALL, seccomp_profile=profile)
    waits: list[float] = []

    def nothing(*arguments: Any) -> tuple[list[int], list[int], list[int]]:
        waits.append(arguments[-1])
        return [], [], []

    with Sandbox.start(spec) as sandbox, monkeypatch.context() as patch:
        patch.setattr("evaluator.sandbox.job.select.select", nothing)
        with pytest.raises(SandboxLeftovers, match=f"still there {seconds} s after SIGKILL"):
            sandbox.kill()
        patch.undo()
        assert waits == [seconds]


def test_kill_leaves_no_zombie_and_nothing_stopped() -> None:
    """Children that nobody waits for, orphans that ended, and processes that stand still."""
    mark = f"mark-{secrets.token_hex(8)}"
    program = """
import os, signal, subprocess, sys, time
for _ in range(5):
    if os.fork() == 0:
        os._exit(3)
for _ in range(3):
    if os.fork() == 0:
        if os.fork() == 0:
            os._exit(4)
        os.kill(os.getpid(), signal.SIGSTOP)
subprocess.Popen(["sleep", "600", sys.argv[1]])
print("ready", flush=True)
time.sleep(600)
"""
    with start(program, mark) as sandbox:
        deadline = time.monotonic() + 60
        while sandbox.output() != "ready\n" and time.monotonic() < deadline:
            time.sleep(0.01)
        family = set(sandbox.inner_pids())
        assert len(family) >= 5
        sandbox.kill()
        assert [pid for pid in family if Path(f"/proc/{pid}").exists()] == []
        assert marked_processes(mark) == []


def test_the_job_ends_with_its_first_process() -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    program = "import subprocess, sys; subprocess.Popen(['sleep', '600', sys.argv[1]], start_new_session=True)"
    with start(program, mark) as sandbox:
        assert sandbox.wait(10) == 0
        assert marked_processes(mark) == []


@pytest.mark.parametrize("frozen", [False, True])
def test_a_killed_judge_takes_its_job_along(frozen: bool) -> None:
    mark = f"mark-{secrets.token_hex(8)}"
    judge = f"""
import time
from evaluator.sandbox import Sandbox, SandboxSpec, python_command
sandbox = Sandbox.start(SandboxSpec(argv=python_command("-c", {SLEEPS!r}, {mark!r})))
if {frozen}:
    sandbox.freeze()
print("started", flush=True)
time.sleep(600)
"""
    command = [sys.executable, "-c", judge]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=PROJECT_ROOT, env={"PYTHONPATH": "."}) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"started\n"
        assert any(pid != process.pid for pid in marked_processes(mark))
        process.kill()
        process.wait()
    deadline = time.monotonic() + 5
    while marked_processes(mark):
        assert time.monotonic() < deadline, "the job outlived its judge by 5 s"
        time.sleep(0.02)


def test_a_job_outlives_the_thread_that_asked_for_it() -> None:
    """bubblewrap dies with the thread that started it; that must not be a thread of the judge's."""
    started: list[Sandbox] = []
    thread = threading.Thread(target=lambda: started.append(start(SLEEPS)))
    thread.start()
    thread.join()
    with started[0] as sandbox:
        assert sandbox.wait(0.5) is None
        assert len(sandbox.members()) == 1


# Watching.


def test_members_and_their_cpu_time() -> None:
    """A spinning process is told from sleeping ones, and each is known by the pid that it has inside."""
    program = """
import os, time
if os.fork() == 0:
    print(os.getpid(), flush=True)
    while True:
        pass
if os.fork() == 0:
    time.sleep(600)
time.sleep(600)
"""
    with start(program) as sandbox:
        time.sleep(0.5)
        before = sandbox.cpu_seconds()
        time.sleep(0.5)
        used = {pid: seconds - before[pid] for pid, seconds in sandbox.cpu_seconds().items()}
        assert len(used) == 3
        busiest = max(used, key=lambda pid: used[pid])
        assert sandbox.inner_pids()[busiest] == int(sandbox.output())
        assert used[busiest] > 0.05
        assert all(seconds < 0.05 for pid, seconds in used.items() if pid != busiest)


def test_a_watch_that_fails_ends_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """A job whose limits nobody looks after must not run on."""
    with start(SLEEPS) as sandbox:
        monkeypatch.setattr(sandbox, "_look", lambda job: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sandbox.wait(10)
        assert sandbox.members() == []


# Starting.


def test_only_the_descriptors_that_are_passed_arrive() -> None:
    read, write = os.pipe()
    extra = os.open(os.devnull, os.O_RDONLY)
    os.set_inheritable(extra, True)  # as a careless library might leave it
    program = "import os, sys; print(sorted(map(int, os.listdir('/proc/self/fd')))); os.write(int(sys.argv[1]), b'x')"
    with start(program, str(write), fds=(write,)) as sandbox:
        assert sandbox.wait(10) == 0
        assert os.read(read, 1) == b"x"
        listing = 3 if write != 3 else 4  # the descriptor with which the folder is listed
        assert sandbox.output() == f"{sorted({0, 1, 2, listing, write})}\n"
    for fd in (read, write, extra):
        os.close(fd)


def test_binds_are_read_only_unless_writable(tmp_path: Path) -> None:
    shown, shared = tmp_path / "shown", tmp_path / "shared"
    for folder in (shown, shared):
        folder.mkdir()
        folder.chmod(0o777)
    (shown / "given").write_text("text")
    program = """
import os
print(open("/a/shown/given").read())
open("/b/new", "w").write("made inside")
try:
    open("/a/shown/new", "w")
except OSError as error:
    print(error.strerror)
"""
    binds = (Bind(shown, "/a/shown"), Bind(shared, "/b", writable=True))
    with Sandbox.start(SandboxSpec(argv=python_command("-c", program), binds=binds)) as sandbox:
        sandbox.wait(10)
        assert sandbox.output() == "text\nRead-only file system\n"
    assert (shared / "new").read_text() == "made inside"


def test_a_missing_command_is_said() -> None:
    with pytest.raises(SandboxUnavailable, match="/no/such/program: No such file"):
        Sandbox.start(SandboxSpec(argv=("/no/such/program",)))
    assert not any(thread.name == "sandbox" for thread in threading.enumerate())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: SandboxSpec(argv=()), "needs a command"),
        (lambda: SandboxSpec(argv=("true",), pass_fds=(1,)), "descriptors 0 to 2"),
        (lambda: SandboxSpec(argv=("true",), devices=("/etc/passwd",)), "not a device path"),
        (lambda: Bind(Path("/dev/null"), "/x"), "only regular files and directories"),
        (lambda: Bind(Path("/usr"), "relative"), "absolute path"),
        (lambda: Bind(Path("/usr"), "/a/../b"), "absolute path"),
        (lambda: ResourceLimits(processes=0), "processes must be positive"),
        (lambda: Sandbox.start(SandboxSpec(argv=("true",), binds=(Bind(PROJECT_ROOT, "/x"),))), "judge's own files"),
        (lambda: Sandbox.start(SandboxSpec(argv=("true",), binds=(Bind(Path("/"), "/x"),))), "judge's own files"),
    ],
)
def test_a_spec_that_must_not_be_is_refused(make: object, message: str) -> None:
    assert callable(make)
    with pytest.raises(ValueError, match=message):
        make()
