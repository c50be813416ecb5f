"""Who sees which run, what is ranked, and what the database itself refuses."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser
from django.db import IntegrityError, transaction

from leaderboard.models import EvaluationScore, Run, RunState, Team, User, Visibility, Worker
from tests.factories import (
    AttemptFactory,
    MembershipFactory,
    RankedModelFactory,
    RunFactory,
    SuiteFactory,
    UserFactory,
    VerdictFactory,
    WorkerFactory,
    evaluated_run,
)

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.fixture
def viewers() -> dict[str, Any]:
    model = RankedModelFactory(name="Ours")
    other_team = MembershipFactory()
    return {
        "visitor": AnonymousUser(),
        "outsider": other_team.user,
        "member": MembershipFactory(team=model.team).user,
        "staff": UserFactory(is_staff=True),
        "model": model,
    }


@pytest.mark.parametrize(
    ("visibility", "until", "seen_by"),
    [
        (Visibility.PUBLIC, None, {"visitor", "outsider", "member", "staff"}),
        (Visibility.EMBARGOED, NOW, {"visitor", "outsider", "member", "staff"}),
        (Visibility.EMBARGOED, NOW + timedelta(seconds=1), {"member", "staff"}),
        (Visibility.PRIVATE, None, {"member", "staff"}),
    ],
)
def test_run_is_seen_by(viewers: dict[str, Any], visibility: str, until: datetime | None, seen_by: set[str]) -> None:
    RunFactory(model=viewers.pop("model"), visibility=visibility, embargo_until=until)
    seen = {name for name, user in viewers.items() if Run.objects.visible_to(user, at=NOW).count() == 1}
    assert seen == seen_by


def test_scores_are_seen_like_their_runs(viewers: dict[str, Any]) -> None:
    evaluated_run("faster", suite=SuiteFactory(), model=viewers.pop("model"), visibility=Visibility.PRIVATE)
    seen = {name for name, user in viewers.items() if EvaluationScore.objects.visible_to(user).exists()}
    assert seen == {"member", "staff"}


def test_member_of_two_teams_sees_each_run_once() -> None:
    run = RunFactory(visibility=Visibility.PRIVATE)
    user = MembershipFactory(team=run.team).user
    MembershipFactory(user=user)
    assert list(Run.objects.visible_to(user)) == [run]
    assert Team.objects.of(user).count() == 2


def test_board_orders_by_correctness_then_fast_1_then_speedup() -> None:
    suite = SuiteFactory(size=3)
    tie = evaluated_run("tie", "tie", suite=suite)
    best = evaluated_run("faster", "tie", "slower", suite=suite)
    faster = evaluated_run("faster", "tie", suite=suite)
    order = EvaluationScore.objects.ranked().in_default_order()
    assert [score.evaluation for score in order] == [best, faster, tie]


def test_neither_withdrawn_nor_unfinished_nor_baseline_nor_unjudged_is_ranked() -> None:
    suite = SuiteFactory(size=3)
    evaluated_run("faster", suite=suite, state=RunState.WITHDRAWN)
    evaluated_run("tie", suite=suite, model=RankedModelFactory(is_baseline=True))
    evaluated_run("faster", "harness_failure", suite=suite)
    running = evaluated_run("faster", suite=suite)
    running.state = "running"
    running.save()
    assert not EvaluationScore.objects.ranked().exists()
    assert EvaluationScore.objects.baselines().count() == 1


def test_rows_of_the_board_need_two_queries_however_many(django_assert_num_queries: Any) -> None:
    suite = SuiteFactory(size=3)
    for _ in range(5):
        evaluated_run("faster", suite=suite)
    with django_assert_num_queries(2):
        for score in EvaluationScore.objects.ranked().in_default_order().with_rows():
            assert score.evaluation.run.team.name
            assert [row.type for row in score.types.all()]


def test_workers_online_are_active_and_were_heard() -> None:
    WorkerFactory(last_seen_at=NOW)
    WorkerFactory(last_seen_at=NOW - timedelta(minutes=3))
    WorkerFactory(last_seen_at=NOW, state="quarantined")
    WorkerFactory(last_seen_at=None)
    assert Worker.objects.online(at=NOW).count() == 1


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        (UserFactory, {"email": "SAME@example.org"}),
        (RunFactory, {"state": "invented"}),
        (RunFactory, {"visibility": "embargoed", "embargo_until": None}),
        (RunFactory, {"cost_usd": -1}),
        (AttemptFactory, {"state": "leased"}),  # without worker and end
        (AttemptFactory, {"number": 0}),
        (VerdictFactory, {"code": "invented", "decision": "none"}),
        (VerdictFactory, {"code": "wrong_values", "decision": "faster"}),
        (VerdictFactory, {"speedup": -1.0}),
    ],
)
def test_the_database_itself_refuses(make: Any, changes: dict[str, Any]) -> None:
    UserFactory(email="same@example.org")
    with pytest.raises(IntegrityError), transaction.atomic():
        make(**changes)


def test_people_without_an_address_do_not_collide() -> None:
    UserFactory(email="")
    UserFactory(email="")
    assert User.objects.filter(email="").count() == 2
