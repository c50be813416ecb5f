"""A cached page is never older than the scores: what changes the version, and what a version guards."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.utils import timezone

from leaderboard import lifecycle, scores, versions
from leaderboard.models import Evaluation, EvaluationState, Run, Verdict, Visibility
from tests.factories import RankedModelFactory, SuiteFactory, UserFactory, evaluated_run

pytestmark = pytest.mark.django_db


@pytest.fixture
def evaluation() -> Evaluation:
    return evaluated_run("faster", "tie", suite=SuiteFactory(size=3))


def both() -> tuple[str | None, str | None]:
    return versions.current(versions.BOARD), versions.current(versions.VERDICTS)


def test_before_the_first_change_nothing_is_cached() -> None:
    assert both() == (None, None)
    answers = iter("ab")
    assert [versions.cached(None, "key", lambda: next(answers)) for _ in range(2)] == ["a", "b"]


def test_a_verdict_of_a_complete_evaluation_changes_the_boards(evaluation: Evaluation) -> None:
    before = both()
    scores.materialise(evaluation)
    after = both()
    assert before[0] != after[0]
    assert before[1] != after[1]


def test_a_verdict_of_a_running_evaluation_leaves_the_boards(evaluation: Evaluation) -> None:
    Evaluation.objects.update(state=EvaluationState.RUNNING)
    before = both()
    scores.materialise(evaluation)
    after = both()
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_a_change_that_is_rolled_back_changes_nothing(evaluation: Evaluation) -> None:
    before = both()
    with pytest.raises(RuntimeError), transaction.atomic():
        scores.materialise(evaluation)
        raise RuntimeError
    assert both() == before


@pytest.mark.parametrize("verb", ["withdraw", "disqualify", "reinstate"])
def test_leaving_and_coming_back_changes_the_boards(evaluation: Evaluation, verb: str) -> None:
    user = UserFactory()
    if verb == "reinstate":
        lifecycle.disqualify_run(evaluation.run, user, reason="a test")
    before = both()
    done = {
        "withdraw": lambda: lifecycle.withdraw_run(evaluation.run, user),
        "disqualify": lambda: lifecycle.disqualify_run(evaluation.run, user, reason="a test"),
        "reinstate": lambda: lifecycle.reinstate_run(evaluation.run, user, reason="a test"),
    }[verb]()
    assert done
    assert both()[0] != before[0]


def test_what_pages_show_beside_scores_changes_them_too(evaluation: Evaluation) -> None:
    for shown in (evaluation.run, evaluation.run.model, evaluation.run.team, evaluation.target, evaluation.suite):
        before = both()
        shown.save()
        assert both()[0] != before[0], shown


def test_the_end_of_an_embargo_changes_the_boards_by_the_clock(evaluation: Evaluation) -> None:
    end = timezone.now() + timedelta(hours=1)
    Run.objects.update(visibility=Visibility.EMBARGOED, embargo_until=end)
    before = versions.current(versions.BOARD, at=end - timedelta(seconds=1))
    assert versions.current(versions.BOARD, at=end - timedelta(minutes=30)) == before
    assert versions.current(versions.BOARD, at=end) != before


def test_a_version_is_read_in_one_query(evaluation: Evaluation, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(1):
        versions.current(versions.BOARD)


def test_storing_scores_takes_the_same_queries_for_many_verdicts(django_assert_max_num_queries: Any) -> None:
    few = evaluated_run("faster", suite=SuiteFactory(size=40), model=RankedModelFactory())
    many = evaluated_run(*["faster", "wrong_values"] * 20, suite=few.suite, model=RankedModelFactory())
    assert Verdict.objects.filter(evaluation=many).count() == 40
    for evaluation in (few, many):
        with django_assert_max_num_queries(18):
            scores.materialise(evaluation)
