"""Where no sandbox can be made, the files that come with the project are evaluated and no others: at every door."""

from __future__ import annotations

import io
from uuid import uuid4

import pytest
from django.test import override_settings

from evaluator import demonstration
from evaluator.contract import Code, Job
from evaluator.judge import evaluate
from evaluator.sandbox import unwalled
from launcher import doctor
from leaderboard.intake import Sent, preview
from tests.factories import ProblemFactory, ProblemVersionFactory, SuiteFactory, UserFactory

CAREFUL = demonstration.FOLDER / "solutions_pytorch_fp32_cpu_demo_careful" / "1_allreduce_pytorch.py"


def job(source: str, target: str = "cpu-gloo") -> Job:
    return Job(attempt_id=uuid4(), problem_id=1, target=target, world_size=4, file_name="1.py", source=source)


@pytest.fixture
def restricted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(demonstration.SETTING, "yes")


@pytest.mark.django_db
def test_the_preview_refuses_a_foreign_file_and_takes_a_demonstration_file() -> None:
    suite = SuiteFactory(size=0)
    problem = ProblemFactory(number=1, slug="allreduce")
    suite.problem_versions.add(ProblemVersionFactory(problem=problem))
    own = CAREFUL.read_bytes()
    for data, status in ((own, "accepted"), (own + b"\n", "refused")):
        with override_settings(ONLY_DEMONSTRATION=True):
            upload = preview(UserFactory(), [Sent("1_allreduce.py", io.BytesIO(data))], suite=suite)
        (finding,) = upload.findings
        assert finding["status"] == status
        assert (finding["sentence"] == demonstration.REFUSAL) is (status == "refused")


def test_the_judge_refuses_a_foreign_file_before_it_starts_anything(
    restricted: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unwalled.subprocess, "Popen", lambda *_, **__: pytest.fail("a process was started"))
    report = evaluate(job(CAREFUL.read_text() + "\n"))
    assert report.code is Code.HARNESS_FAILURE
    assert report.message == demonstration.REFUSAL


def test_without_the_setting_nothing_runs_without_walls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(demonstration.SETTING, raising=False)
    assert not demonstration.only()


@pytest.mark.sandbox
def test_a_demonstration_file_gets_its_verdict_and_the_report_says_that_there_was_no_wall(restricted: None) -> None:
    report = evaluate(job(CAREFUL.read_text()), with_timing=False)
    assert report.code is Code.CORRECT, report.message
    assert report.isolation is not None
    assert report.isolation.mode == "none"


SANDBOX = {"name": "sandbox", "ok": False, "needed": True, "sentence": "No namespaces.", "remedy": "Allow them."}
TORCH = {"name": "torch", "ok": False, "needed": True, "sentence": "No torch.", "remedy": "Install it."}
GPUS = {"name": "gpus", "ok": False, "needed": False, "sentence": "None.", "remedy": ""}


@pytest.mark.parametrize(("findings", "restricts"), [([SANDBOX, GPUS], True), ([TORCH, GPUS], False)])
def test_run_says_what_is_missing_and_restricts_only_for_want_of_a_sandbox(
    findings: list[dict[str, object]], restricts: bool
) -> None:
    verdict = doctor.read({"can_evaluate": False, "targets": [], "findings": findings})
    assert verdict.only_demonstration is restricts
    text = "\n".join(verdict.lines)
    assert str(findings[0]["sentence"]) in text
    assert str(findings[0]["remedy"]) in text
    assert "None." not in text
    assert ("demonstration" in text) is restricts
