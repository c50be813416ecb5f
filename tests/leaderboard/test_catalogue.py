"""What a release brings (suite, targets, published figures) is loaded and never rewrites what was judged."""

from __future__ import annotations

import json
from copy import deepcopy
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command

from leaderboard import hardware, published
from leaderboard.models import EvaluationScore, PublishedResult, Target, Verdict
from problems import catalogue
from problems.models import Problem, ProblemVersion, Suite
from tests.factories import evaluated_run

pytestmark = pytest.mark.django_db


def entry(number: int, digest: str = "a", **changes: Any) -> dict[str, Any]:
    return {
        "id": number,
        "slug": f"problem_{number}",
        "aliases": [],
        "title": f"Problem {number}",
        "type": "tensor",
        "also": ["collective"],
        "domain": "",
        "stage": "forward",
        "origin": "",
        "difficulty": 2,
        "statement": "Sum.",
        "signature": "solution(x)",
        "reference": "def solution(x): ...",
        "communication": "all_reduce",
        "digest": f"{digest}{number}",
        "hazards": ["rounding"],
        **changes,
    }


@pytest.fixture
def manifest() -> dict[str, Any]:
    return {"suite": "1.0", "problems": [entry(1), entry(2)]}


def test_manifest_becomes_the_current_suite_once(manifest: dict[str, Any]) -> None:
    loaded = catalogue.load(manifest)
    assert (loaded.suite.version, loaded.new_versions, loaded.new_suite) == ("1.0", 2, True)
    again = catalogue.load(manifest)
    assert (again.suite, again.new_versions, again.new_suite) == (loaded.suite, 0, False)
    assert Suite.objects.current() == loaded.suite
    assert [p.number for p in Problem.objects.in_suite(loaded.suite)] == [1, 2]
    version = ProblemVersion.objects.get(problem__number=1)
    assert (version.statement, version.details) == ("Sum.", {"hazards": ["rounding"]})


def test_changed_problem_is_a_new_version_of_an_unused_suite(manifest: dict[str, Any]) -> None:
    suite = catalogue.load(manifest).suite
    manifest["problems"][0] = entry(1, digest="b", title="Problem one")
    assert catalogue.load(manifest).suite == suite
    assert suite.problem_versions.get(problem__number=1).number == 2
    assert Problem.objects.get(number=1).title == "Problem one"


def test_suite_that_somebody_was_judged_by_is_frozen(manifest: dict[str, Any]) -> None:
    original = deepcopy(manifest)
    first = catalogue.load(manifest).suite
    evaluated_run("tie", "faster", suite=first)
    manifest["problems"] = [entry(1), entry(2, digest="b"), entry(3)]
    second = catalogue.load(manifest).suite
    assert second.version == "1.0+2"
    assert Suite.objects.current() == second
    assert set(first.problem_versions.values_list("digest", flat=True)) == {"a1", "a2"}
    assert EvaluationScore.objects.get().problems == 2
    assert catalogue.load(original).suite == first  # going back finds it again


def test_targets_come_from_the_evaluators_file(settings: Any, tmp_path: Path) -> None:
    named = {entry["name"] for entry in json.loads(settings.TARGETS_FILE.read_text())["targets"]}
    assert hardware.load() == Target.objects.count() == len(named)
    assert set(Target.objects.values_list("name", flat=True)) == named
    gloo = Target.objects.get(name="cpu-gloo")
    assert (gloo.queue, gloo.world_size, gloo.is_ranked, gloo.is_open) == ("eval.cpu-gloo", 4, False, True)
    assert Target.objects.get(name="h100x8").peaks["link_bytes_per_second"] == 450e9
    Target.objects.filter(name="b200x8").update(is_open=False)
    hardware.load()
    assert not Target.objects.get(name="b200x8").is_open  # a maintainer closed it
    shorter = json.loads(settings.TARGETS_FILE.read_text())
    shorter["targets"] = [t for t in shorter["targets"] if t["name"] != "h100x4"]
    settings.TARGETS_FILE = tmp_path / "targets.json"
    settings.TARGETS_FILE.write_text(json.dumps(shorter))
    hardware.load()
    assert not Target.objects.get(name="h100x4").is_open


def test_published_figures_have_sources_and_go_with_the_file() -> None:
    PublishedResult.objects.create(key="gone", kind="headline", source="nowhere")
    assert published.load() == PublishedResult.objects.count() == 10
    assert not PublishedResult.objects.filter(source="").exists()
    agentic = PublishedResult.objects.get(key="gemini-3-pro-agentic")
    assert (agentic.correct, agentic.faster, agentic.problems, agentic.steps) == (35, 26, 87, 20)


def test_load_suite_says_what_is_missing(settings: Any, tmp_path: Path) -> None:
    settings.SUITE_MANIFEST = tmp_path / "manifest.json"
    with pytest.raises(CommandError, match=r"python -m problems\.suite manifest --write"):
        call_command("load_suite", stdout=StringIO())


def test_load_suite_loads_the_suite_of_this_release() -> None:
    out = StringIO()
    call_command("load_suite", stdout=out)
    problems = len(json.loads(settings.SUITE_MANIFEST.read_text())["problems"])
    assert f"Suite 1.0: {problems} problems" in out.getvalue()
    assert Problem.objects.get(number=13).slug == "gemm_allreduce"


def test_rescore_finds_and_repairs_what_was_tampered_with(manifest: dict[str, Any]) -> None:
    evaluated_run("faster", "wrong_values", suite=catalogue.load(manifest).suite)
    call_command("rescore", "--check", stdout=StringIO())
    EvaluationScore.objects.update(correct=2, correctness_rate=1.0)
    Verdict.objects.filter(code="correct").update(speedup=4.0)
    out = StringIO()
    with pytest.raises(CommandError, match="1 of 1 evaluations"):
        call_command("rescore", "--check", stdout=out)
    assert "correct is 2, recomputed 1" in out.getvalue()
    assert "the row of primary tensor differs" in out.getvalue()
    call_command("rescore", stdout=StringIO())
    call_command("rescore", "--check", stdout=StringIO())
    assert EvaluationScore.objects.get().speedup == pytest.approx(2.0)  # sqrt(4 · 1)


def test_an_update_of_the_rules_rescores_what_they_scored_before(manifest: dict[str, Any]) -> None:
    suite = catalogue.load(manifest).suite
    for _ in range(2):
        evaluated_run("faster", suite=suite)
    old = EvaluationScore.objects.earliest("pk")
    EvaluationScore.objects.filter(pk=old.pk).update(scoring_version="0.9", outcomes={}, solved_bits="0")
    out = StringIO()
    call_command("rescore", "--outdated", stdout=out)
    assert out.getvalue() == "1 evaluations checked, 1 recomputed.\n"
    old.refresh_from_db()
    assert (old.solved.bit_count(), len(old.outcomes)) == (1, 1)
    call_command("rescore", "--check", stdout=StringIO())
