"""Which verdict stands for a problem in each track, and what is stored of it."""

from __future__ import annotations

from typing import Any

import pytest

from leaderboard import scores
from leaderboard.models import Evaluation, TypeScore
from problems.models import Problem
from tests.factories import (
    EvaluationFactory,
    ProblemFactory,
    ProblemVersionFactory,
    RunFactory,
    SubmissionFactory,
    SuiteFactory,
    VerdictFactory,
    evaluated_run,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Any:
    return SuiteFactory(size=4)


def evaluation_with(
    suite: Any, track: str, answers: dict[int, list[tuple[str, float | None]]], place: str
) -> Evaluation:
    """``answers``: index of the problem -> decision or failure code, and speedup, of each sample or step in order."""
    evaluation = EvaluationFactory(run=RunFactory(track=track), suite=suite)
    problems = list(Problem.objects.in_suite(suite))
    for index, files in answers.items():
        for number, (outcome, speedup) in enumerate(files):
            correct = speedup is not None
            VerdictFactory(
                evaluation=evaluation,
                submission=SubmissionFactory(run=evaluation.run, problem=problems[index], **{place: number}),
                code="correct" if correct else outcome,
                decision=outcome if correct else "none",
                speedup=speedup,
            )
    return evaluation


def test_best_sample_stands_for_a_problem_and_pass_at_k_counts_them_all(suite: Any) -> None:
    answers = {
        0: [("tie", 1.0), ("faster", 1.5), ("faster", 3.0), ("deadlock", None)],
        1: [("wrong_values", None), ("wrong_values", None), ("slower", 0.5), ("race", None)],
    }
    score = scores.materialise(evaluation_with(suite, "multi-sample", answers, "sample"))
    assert (score.correct, score.faster, score.problems, score.submissions) == (2, 1, 4, 8)
    assert score.speedup == pytest.approx(3.0 ** (1 / 4))
    assert score.pass_at_k == {"1": (3 / 4 + 1 / 4) / 4, "2": pytest.approx((1 + 1 / 2) / 4), "4": 2 / 4}
    assert score.fast_1_at_k["4"] == 1 / 4


def test_last_step_stands_for_an_agents_answer(suite: Any) -> None:
    answers = {0: [("faster", 9.0), ("compile_error", None)], 1: [("deadlock", None), ("faster", 2.0)]}
    score = scores.materialise(evaluation_with(suite, "agentic", answers, "step"))
    assert (score.correct, score.faster) == (1, 1)
    assert score.pass_at_k == {}
    assert sorted(code for code, *_ in score.outcomes.values()) == ["compile_error", "correct"]


def test_our_failures_are_no_samples(suite: Any) -> None:
    answers = {0: [("tie", 1.0), ("harness_failure", None)]}
    score = scores.materialise(evaluation_with(suite, "multi-sample", answers, "sample"))
    assert (score.judged, score.unjudged, score.pass_at_k) == (1, 1, {"1": 1 / 4})


def test_problem_counts_once_by_primary_type_and_in_each_of_its_types() -> None:
    suite = SuiteFactory(size=0)
    for type_, also in [("tensor", ["collective"]), ("collective", [])]:
        suite.problem_versions.add(ProblemVersionFactory(problem=ProblemFactory(type=type_, also=also)))
    score = evaluated_run("faster", "wrong_values", suite=suite).score
    rows = {(r.view, r.type): (r.correct, r.problems) for r in TypeScore.objects.filter(score=score)}
    assert rows == {
        ("primary", "tensor"): (1, 1),
        ("primary", "collective"): (0, 1),
        ("also", "tensor"): (1, 1),
        ("also", "collective"): (1, 2),
    }


def test_figures_by_the_public_rule_stand_beside_ours(suite: Any) -> None:
    evaluation = evaluated_run("faster", "imprecise", suite=suite)
    for verdict, ratio in zip(evaluation.verdicts.order_by("pk"), (1.2, 0.8), strict=True):
        verdict.compatible_correct, verdict.compatible_speedup = True, ratio
        verdict.save()
    score = scores.materialise(evaluation)
    assert (score.correct, score.compatible_correct, score.compatible_faster) == (1, 2, 1)
    assert score.compatible_speedup == pytest.approx((1.2 * 0.8) ** 0.5)
