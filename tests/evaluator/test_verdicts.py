"""Every kernel in ``kernels/`` gets the verdict that its first lines state, through the real sandbox and judge.

Header lines of a kernel, ``# key: value``; all but ``expect`` are optional:
  expect          code of the report (a regular expression)
  message, hint, log  regular expressions found in the sentence, in a hint, in the log of every rank
  primary         rank that must be named as the first to fail
  decision        on speed (a regular expression)
  problem         id, 13 if there is none
  row             rows of docs/integrity.md that it belongs to: it has the mark "integrity" then
  runs            "nightly": not in ./test
  call_seconds, ready_seconds, timing_seconds  budgets; without the last speed is not compared
  probes          "yes": the probes are made although speed is not compared
Adding a kernel needs no change here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

import evaluator.judge.hardware
from evaluator.contract import Decision, Job, Limits, Phase, PhaseStatus, Progress, Report
from evaluator.judge import arm, evaluate
from evaluator.sandbox import ResourceLimits

pytestmark = pytest.mark.sandbox

KERNELS = sorted((Path(__file__).parent / "kernels").glob("*.py"))
GiB, MiB = 1024**3, 1024**2
LIMITS = ResourceLimits(memory_bytes=2 * GiB, tmp_bytes=64 * MiB, shm_bytes=64 * MiB, processes=160)


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory bombs need not fill the machine."""
    monkeypatch.setattr(evaluator.judge.hardware, "CPU_LIMITS", LIMITS)


@pytest.fixture
def leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Afterwards the host is as before: no process, no folder, no descriptor, no shared memory of the job."""
    folders: list[Path] = []

    original = arm.private_folder

    def recorded(name: str) -> tuple[Path, int]:
        made = original(name)
        folders.append(made[0])
        return made

    monkeypatch.setattr(arm, "private_folder", recorded)
    descriptors, shared = open_descriptors(), set(Path("/dev/shm").iterdir())
    yield
    assert descendants(os.getpid()) == set()
    assert [folder for folder in folders if folder.exists()] == []
    assert open_descriptors() == descriptors
    new = {path.name for path in set(Path("/dev/shm").iterdir()) - shared}  # other programs of the host may make some
    assert not [name for name in new if name.startswith(("parts-", "mail", "late-", "note"))]


def open_descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


def header(source: str) -> dict[str, str]:
    return dict(re.findall(r"^# (\w+): (.+)$", source, re.MULTILINE))


def job(source: str, *, problem: int = 13, world_size: int = 4, limits: Limits | None = None) -> Job:
    return Job(
        attempt_id=uuid4(),
        problem_id=problem,
        target="cpu-gloo",
        world_size=world_size,
        file_name="kernel.py",
        source=source,
        limits=limits or Limits(),
    )


def kernel(name: str) -> str:
    return (Path(__file__).parent / "kernels" / f"{name}.py").read_text(encoding="utf-8")


def judged(source: str) -> tuple[dict[str, str], Report]:
    wanted = header(source)
    budgets = {n: float(wanted[f"{n}_seconds"]) for n in ("call", "ready", "timing") if f"{n}_seconds" in wanted}
    problem = int(wanted.get("problem", 13))
    timing = "timing" in budgets
    report = evaluate(
        job(source, problem=problem, limits=Limits(**budgets)),
        with_timing=timing,
        with_probes=timing or wanted.get("probes") == "yes",
    )
    return wanted, report


def marked(path: Path) -> object:
    """The kernel as a parameter, with the marks that its header asks for."""
    wanted = header(path.read_text(encoding="utf-8"))
    marks = [pytest.mark.integrity] if "row" in wanted else []
    marks += [pytest.mark.nightly] if wanted.get("runs") == "nightly" else []
    return pytest.param(path, id=path.stem, marks=marks)


@pytest.mark.parametrize("path", [marked(path) for path in KERNELS])
def test_kernel_gets_its_verdict(path: Path, leaves_nothing: None) -> None:
    wanted, report = judged(path.read_text(encoding="utf-8"))
    assert re.fullmatch(wanted["expect"], report.code), report.message
    assert re.search(wanted.get("message", ""), report.message)
    if "hint" in wanted:
        assert any(re.search(wanted["hint"], hint) for hint in report.hints), report.hints
    if "log" in wanted:
        assert all(re.search(wanted["log"], rank.log) for rank in report.ranks)
    if "primary" in wanted:
        assert [rank.rank for rank in report.ranks if rank.primary] == [int(wanted["primary"])]
    if "decision" in wanted:
        assert re.fullmatch(wanted["decision"], report.decision), report.message
    assert_report_is_complete(report)


def assert_report_is_complete(report: Report) -> None:
    """Phases in order, nothing passed after a failure, an id for every failure, all ranks, the sandbox in force."""
    assert [phase.phase for phase in report.phases] == list(Phase)
    failed = [phase.phase for phase in report.phases if phase.status is PhaseStatus.FAILED]
    correct = report.code == "correct"
    assert len(failed) == (0 if correct else 1)
    if not correct:
        after = report.phases[list(Phase).index(failed[0]) + 1 :]
        assert all(phase.status is PhaseStatus.SKIPPED and phase.detail for phase in after)
        assert len(report.failure_id) == 12
    assert len(report.ranks) == report.world_size
    if failed != [Phase.STATIC]:
        assert report.isolation is not None
        assert report.isolation.mode != "none"
    assert Report.model_validate_json(report.model_dump_json()) == report


def test_the_reference_sent_in_is_correct_and_a_tie() -> None:
    """Twice in a row another decision on an unchanged program has a chance of less than 1 in 10 000 by design."""
    reports = [evaluate(job(kernel("reference_as_submission")))]
    if reports[0].decision is not Decision.TIE:
        reports.append(evaluate(job(kernel("reference_as_submission"))))
    report = reports[-1]
    assert report.code == "correct", report.message
    assert report.decision is Decision.TIE, [r.message for r in reports]
    assert report.compatible.correct
    assert report.timing is not None
    assert report.speedup is not None
    assert len(report.timing.pairs) in (5, 10, 20)
    assert all(len(pair.reference) == len(pair.candidate) for pair in report.timing.pairs)
    assert 0 < report.scheduled_seconds < report.seconds
    assert {case.kind for case in report.cases} >= {"public", "hidden", "stress"}


@pytest.mark.parametrize("problem", [1, 2, 27, 36, 73])
@pytest.mark.parametrize("world_size", [2, 4])
def test_every_reference_passes_its_own_trials(problem: int, world_size: int) -> None:
    from problems.suite import registry
    from problems.suite.reference import reference_source

    source = reference_source(registry.find(problem))
    report = evaluate(job(source, problem=problem, world_size=world_size), with_timing=False)
    assert report.code == "correct", report.message


@pytest.mark.parametrize("name", ["../../../etc/x.py", "/etc/x.py", "a b;$(touch x).py", "x\n.py", ".", "\u202e.py"])
def test_the_name_of_a_file_is_no_path(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a label: nothing is opened, written or started by it."""
    monkeypatch.chdir(tmp_path)
    named = Job.model_validate(job(kernel("zeros")).model_dump() | {"file_name": name, "source": "def solution(: pass"})
    report = evaluate(named, with_timing=False)
    assert report.code == "invalid_file"
    assert list(tmp_path.iterdir()) == []


def test_progress_is_told_in_the_order_of_phases() -> None:
    told: list[Progress] = []
    evaluate(job(kernel("zeros")), progress=told.append, with_timing=False)
    phases = [message.phase for message in told]
    assert phases == sorted(phases, key=list(Phase).index)
    assert [message.sequence for message in told] == list(range(len(told)))
    assert {Phase.STATIC, Phase.COMPILE, Phase.IMPORT, Phase.READY, Phase.TRIALS} <= set(phases)


def test_rounding_that_only_the_public_rule_refuses_is_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reference that is itself 2 % off, as a public one in bf16 may be; the judge's oracle is right."""
    import evaluator.judge.evaluation as evaluation

    monkeypatch.setattr(evaluation, "publicly_refused", lambda ours, theirs: 4e-4)
    report = evaluate(job(kernel("honest_strided_output")), with_timing=False)
    assert report.code == "correct"
    assert report.compatible.correct is False
    assert report.compatible.reason == "rounding"
    assert any("refuses 0.040% of a tensor, by rounding alone" in hint for hint in report.hints)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"problem_id": 9_999}, "no problem"),
        ({"target": "abacus"}, "There is no target 'abacus'"),
        ({"target": "h100x8", "world_size": 8}, "GPUs"),
        ({"world_size": 3}, "runs 2 or 4 ranks, not 3"),
        ({"precision": "bf16"}, "runs fp32, not bf16"),
        ({"problem_digest": "0" * 64}, "another version of problem 13"),
    ],
)
def test_jobs_that_this_host_cannot_serve_are_no_verdict(changes: dict[str, object], sentence: str) -> None:
    report = evaluate(Job.model_validate(job(kernel("zeros")).model_dump() | changes))
    assert report.code == "harness_failure"
    assert sentence in report.message
    assert "not the submission's fault" in report.hints[0]


def test_a_failure_of_ours_is_no_verdict_and_names_no_place_of_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    import evaluator.judge.trials as trials

    def broken(*arguments: object, **more: object) -> None:
        raise ZeroDivisionError("/a/secret/path")

    monkeypatch.setattr(trials, "check", broken)
    report = evaluate(job(kernel("zeros")), with_timing=False)
    assert report.code == "harness_failure"
    assert "ZeroDivisionError" in report.message
    assert "secret" not in report.model_dump_json()


def test_a_reference_that_fails_is_our_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decided from the reference alone: nothing that the candidate does or says can bring it about."""
    import evaluator.judge.evaluation as evaluation

    monkeypatch.setattr(evaluation, "reference_source", lambda problem: kernel("zeros"))
    report = evaluate(job(kernel("reference_as_submission")), with_timing=False)
    assert report.code == "harness_failure"
    assert "reference" in report.message


def test_the_hard_cap_ends_an_evaluation() -> None:
    report = evaluate(job(kernel("sleeps_for_ever"), limits=Limits(total=6)), with_timing=False)
    assert report.code in ("deadlock", "too_slow")
    assert report.seconds < 20


def descendants(pid: int) -> set[int]:
    """All processes below a process, by what /proc says."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(") ")[2].split()[1])
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family - {pid}


def test_nothing_outlives_a_judge_that_is_killed() -> None:
    """Neither processes of the job nor, once the next judge has looked, its folders."""
    kernel_path = str(Path(__file__).parent / "kernels" / "sleeps_for_ever.py")
    command = [sys.executable, "-m", "evaluator", "evaluate", kernel_path, "--problem", "13"]
    judge = subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL)
    with judge:
        assert judge.stderr is not None
        while b"trial 1" not in judge.stderr.readline():
            assert judge.poll() is None
        family = descendants(judge.pid)
        assert len(family) >= 2 * (4 + 1), "two jobs with a fork server and four ranks each"
        judge.kill()
    deadline = time.monotonic() + 10
    while left := {pid for pid in family if Path(f"/proc/{pid}").exists()}:
        assert time.monotonic() < deadline, f"still there: {left}"
        time.sleep(0.05)
