"""The worker's hold over the judge: whatever it does, the worker gets a report or a reason, and no process is left."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from uuid import uuid4

import pytest

from evaluator.contract import Job, Limits, Progress
from evaluator.worker.judging import Judge, JudgeFailed, NoLongerWanted

JOB = Job(
    attempt_id=uuid4(),
    problem_id=13,
    target="cpu-gloo",
    world_size=4,
    file_name="13.py",
    source="x" * 500_000,
    limits=Limits(total=1),
)
HEAD = "import json, os, subprocess, sys, time\njob = json.load(sys.stdin)\n"
REPORT = (
    "print(json.dumps({'attempt_id': job['attempt_id'], 'problem_id': 13, 'problem_digest': '', 'target': 'cpu-gloo',"
    "'world_size': 4, 'precision': 'fp32', 'code': 'deadlock', 'message': 'Stuck.',"
    "'phases': [{'phase': 'static', 'status': 'passed'}]}), flush=True)\n"
)


def judge(program: str, **options: object) -> Judge:
    heard: list[Progress] = []
    defaults = {"progress": heard.append, "alive": lambda: True, "margin": 1.0}
    return Judge([sys.executable, "-c", HEAD + program], JOB, **{**defaults, **options})  # type: ignore[arg-type]


def dies(pid: int) -> bool:
    """Whether the process is gone within five seconds: SIGKILL works, but not at once."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(50):
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.1)
    return False


def test_progress_then_report() -> None:
    heard: list[Progress] = []
    line = "print(json.dumps({'attempt_id': job['attempt_id'], 'sequence': 0, 'phase': 'trials'}), flush=True)\n"
    report = judge(line + REPORT, progress=heard.append).run()
    assert (report.code, [p.phase for p in heard]) == ("deadlock", ["trials"])


@pytest.mark.parametrize(
    ("program", "words"),
    [
        (
            "print('out of disk', file=sys.stderr); sys.exit(4)",
            "exit status 4 without a report. Last words: out of disk",
        ),
        ("os.kill(os.getpid(), 9)", "exit status -9"),
        ("print('hello')", "neither progress nor report"),
        ("print('[' * 100_000)", "neither progress nor report"),
        (REPORT.replace("job['attempt_id']", f"'{uuid4()}'"), "output about attempt"),
        (REPORT + REPORT, "output after the report"),
        ("sys.stdout.write('{')", "the last line of output is cut off"),
        ("sys.stdout.write('x' * 5_000_000)", "bytes in a line"),
    ],
)
def test_broken_protocol_is_a_failure_of_the_judge(program: str, words: str) -> None:
    with pytest.raises(JudgeFailed, match=words):
        judge(program).run()


def test_judge_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    program = (
        "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "time.sleep(600)\n"
    )
    start = time.monotonic()
    with pytest.raises(JudgeFailed, match="no report 2 s after the start"):
        judge(program).run()
    assert time.monotonic() - start < 30
    assert all(dies(int(pid)) for pid in (tmp_path / "pids").read_text().split())


def test_child_that_keeps_the_pipe_open_does_not_keep_the_worker() -> None:
    report = judge("subprocess.Popen(['sleep', '600'])\n" + REPORT, margin=60.0).run()
    assert report.code == "deadlock"


def test_evaluation_that_nobody_wants_any_more_is_stopped() -> None:
    with pytest.raises(NoLongerWanted):
        judge("time.sleep(600)", alive=lambda: False, margin=600.0).run()


def test_judge_that_is_missing_is_a_failure_of_ours() -> None:
    missing = Judge(["/nonexistent/judge"], JOB, progress=lambda p: None, alive=lambda: True)
    with pytest.raises(JudgeFailed, match="did not start"):
        missing.run()


TRACE = (
    "def trace(rank, attempt=job['attempt_id']):\n"
    "    print(json.dumps({'attempt_id': attempt, 'rank': rank, 'part': 0, 'parts': 1, 'size': 3, 'sha256': 'a' * 64,"
    " 'data': 'eHl6'}), flush=True)\n"
)


def test_traces_are_kept_for_the_site_in_their_order() -> None:
    reading = judge(TRACE + "trace(1); trace(0)\n" + REPORT)
    assert reading.run().code == "deadlock"
    assert [(part.rank, part.data) for part in reading.traces] == [(1, "eHl6"), (0, "eHl6")]


def test_a_trace_of_another_attempt_is_a_failure_of_the_judge() -> None:
    with pytest.raises(JudgeFailed, match="output about attempt"):
        judge(TRACE + f"trace(0, '{uuid4()}')\n" + REPORT).run()


def test_more_traces_than_were_asked_for_are_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("evaluator.worker.judging.MAX_OUTPUT", 1_000)
    program = TRACE + "for rank in range(16): trace(rank)\n" + REPORT
    with pytest.raises(JudgeFailed, match="1000 in all"):
        judge(program).run()
    asked = JOB.model_copy(update={"profile": True})
    reading = Judge([sys.executable, "-c", HEAD + program], asked, progress=lambda _: None, alive=lambda: True)
    assert reading.run().code == "deadlock" and len(reading.traces) == 16
