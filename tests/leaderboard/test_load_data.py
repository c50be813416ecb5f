"""The generator of load tests makes what a real site would hold: rows that fit each other, scores that fit the rows."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.db.models import F

from leaderboard.models import Evaluation, EvaluationScore, Run, Verdict
from tests.factories import SuiteFactory, evaluated_run

pytestmark = pytest.mark.django_db


def test_scores_of_a_load_test_are_those_of_its_verdicts(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from benchmarks import load_data

    monkeypatch.setattr(load_data, "FULL_PAGE", 1)
    monkeypatch.setattr(load_data, "MODELS", 8)
    call_command("load_suite", stdout=StringIO())
    assert load_data.grow(150) >= 150
    assert EvaluationScore.objects.ranked().count() == Run.objects.count() >= 1
    assert not Verdict.objects.exclude(target=F("evaluation__target"), problem=F("submission__problem")).exists()
    assert Evaluation.objects.earliest("pk").target.name == "h100x4"
    call_command("rescore", "--check", stdout=StringIO())


def test_a_site_with_real_runs_is_refused() -> None:
    from benchmarks import load_data

    evaluated_run("tie", suite=SuiteFactory())
    with pytest.raises(SystemExit, match="no load test"):
        load_data.grow(10)
