"""How kernels move data and fail, and an agent's way from step to step, as stored with the scores."""

from __future__ import annotations

import pytest

from leaderboard import profiles, scores
from leaderboard.models import Evaluation, Standing, Submission, Track, Verdict
from leaderboard.profiles import Step, Use
from problems.models import Problem, Suite
from tests.factories import (
    EvaluationFactory,
    ProblemFactory,
    ProblemVersionFactory,
    RunFactory,
    SubmissionFactory,
    SuiteFactory,
    VerdictFactory,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Suite:
    """Problem 1 is a collective, 2 and 3 are of type tensor."""
    suite = SuiteFactory(size=0, is_current=True)
    kinds = {1: "collective", 2: "tensor", 3: "tensor"}
    problems = [ProblemFactory(number=number, type=kind) for number, kind in kinds.items()]
    suite.problem_versions.set(ProblemVersionFactory(problem=problem) for problem in problems)
    return suite


def answer(evaluation: Evaluation, number: int, code: str = "correct", step: int = 0, **fields: object) -> Verdict:
    submission = SubmissionFactory(run=evaluation.run, problem=Problem.objects.get(number=number), step=step)
    return VerdictFactory(evaluation=evaluation, submission=submission, code=code, **fields)


def evaluation_of(suite: Suite, track: str = Track.SINGLE_SHOT) -> Evaluation:
    return EvaluationFactory(run=RunFactory(track=track), suite=suite)


def test_mechanisms_count_answers_correct_and_faster_by_type(suite: Suite) -> None:
    evaluation = evaluation_of(suite)
    answer(evaluation, 1, mechanisms=["TMA (static)", "TMA"])
    answer(evaluation, 2, mechanisms=["TMA", "copy engine"], decision="tie")
    answer(evaluation, 3, "race", mechanisms=["TMA"])
    stored = scores.materialise(evaluation).profile
    assert profiles.uses([stored]) == {"TMA": Use(3, 2, 1), "copy engine": Use(1, 1, 0)}
    assert profiles.uses([stored], of_type="tensor") == {"TMA": Use(2, 1, 0), "copy engine": Use(1, 1, 0)}
    assert profiles.uses([stored, stored])["TMA"] == Use(6, 4, 2)


def test_what_does_not_count_is_not_correct(suite: Suite) -> None:
    evaluation = evaluation_of(suite)
    answer(evaluation, 1, mechanisms=["TMA"], standing=Standing.HELD)
    assert profiles.uses([scores.materialise(evaluation).profile]) == {"TMA": Use(1, 0, 0)}


def test_failures_are_counted_by_type_and_by_phase(suite: Suite) -> None:
    evaluation = evaluation_of(suite)
    answer(evaluation, 1, "compile_error", failed_phase="compile")
    answer(evaluation, 2, "race", failed_phase="trials")
    answer(evaluation, 3, "race", failed_phase="probes")
    stored = scores.materialise(evaluation).profile
    assert profiles.failures([stored], "failures") == {"collective": {"compile_error": 1}, "tensor": {"race": 2}}
    assert profiles.failures([stored], "phases") == {
        "compile": {"compile_error": 1},
        "trials": {"race": 1},
        "probes": {"race": 1},
    }


def test_an_agents_latest_answers_stand_and_its_best_are_remembered(suite: Suite) -> None:
    evaluation = evaluation_of(suite, Track.AGENTIC)
    answer(evaluation, 1, step=0, decision="tie")
    answer(evaluation, 2, "race", step=0)
    answer(evaluation, 1, "race", step=1)  # what was right is lost again
    answer(evaluation, 2, step=2)
    assert profiles.steps(scores.materialise(evaluation).profile) == [
        Step(0, answered=2, correct=1, faster=0, ever_correct=1, ever_faster=0),
        Step(1, answered=2, correct=0, faster=0, ever_correct=1, ever_faster=0),
        Step(2, answered=2, correct=1, faster=1, ever_correct=2, ever_faster=1),
    ]


def test_what_steps_cost_adds_up_and_ends_where_a_cost_is_missing(suite: Suite) -> None:
    evaluation = evaluation_of(suite, Track.AGENTIC)
    bill = {(1, 0): ("0.10", 1_000), (2, 0): ("0.20", 2_000), (1, 1): ("0.000001", None), (1, 2): (None, 5)}
    for (number, step), (usd, tokens) in bill.items():
        verdict = answer(evaluation, number, "harness_failure" if number == 2 else "correct", step=step)
        Submission.objects.filter(pk=verdict.submission_id).update(cost_usd=usd, cost_tokens=tokens)
    score = scores.materialise(evaluation)
    spent = [(step.cost_usd, step.cost_tokens) for step in profiles.steps(score.profile)]
    assert spent == [(0.3, 3_000), (0.300001, None), (None, None)], "files that nobody could judge were paid for too"
    score.refresh_from_db()
    assert scores.differences(evaluation) == [], "stored and read back, figures are the same to the last digit"
    Submission.objects.filter(step=1).update(cost_usd=3)
    assert [text.partition(" ")[0] for text in scores.differences(evaluation)] == ["profile"]


def test_steps_stored_before_there_were_costs_are_read(suite: Suite) -> None:
    assert profiles.steps({"steps": [[0, 3, 2, 1, 2, 1]]}) == [Step(0, 3, 2, 1, 2, 1, None, None)]


def test_stored_profiles_are_part_of_what_rescore_proves(suite: Suite) -> None:
    evaluation = evaluation_of(suite)
    answer(evaluation, 1, mechanisms=["TMA"])
    scores.materialise(evaluation)
    assert scores.differences(evaluation) == []
    Verdict.objects.update(mechanisms=["multimem"])
    assert [text.partition(" ")[0] for text in scores.differences(evaluation)] == ["profile"]
