"""Several processes at once, on a real database: one wins, the others are told, nobody sees "database is locked"."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import pytest
from django.db import connection

from evaluator.contract import Claim, Code
from leaderboard import lifecycle
from leaderboard.intake import Declaration, Sent, confirm, preview
from leaderboard.models import Attempt, EvaluationScore, QuotaEntry, Run, Submission, Verdict
from tests.factories import (
    AttemptFactory,
    EvaluationFactory,
    MembershipFactory,
    RankedModelFactory,
    SubmissionFactory,
    SuiteFactory,
    TargetFactory,
    WorkerFactory,
)
from tests.reports import report_for

pytestmark = pytest.mark.django_db(transaction=True)
THREADS = 8


def at_once(deeds: list[Callable[[], object]]) -> Counter[str]:
    """Run all in threads with a connection each; counts the outcomes: "done" or the name of the exception."""

    def run(deed: Callable[[], object]) -> str:
        try:
            deed()
        except lifecycle.Stale:
            return "Stale"
        finally:
            connection.close()
        return "done"

    with ThreadPoolExecutor(THREADS) as pool:
        return Counter(pool.map(run, deeds))


def test_one_of_many_workers_gets_the_lease() -> None:
    attempt = AttemptFactory()
    workers = WorkerFactory.create_batch(THREADS)
    claim = Claim(attempt_id=attempt.pk, attempt_number=1)
    outcomes = at_once([lambda w=worker: lifecycle.lease_attempt(claim, w) for worker in workers])  # type: ignore[misc]
    assert outcomes == {"done": 1, "Stale": THREADS - 1}
    attempt.refresh_from_db()
    assert attempt.worker in workers


def test_same_report_from_many_deliveries_is_one_verdict() -> None:
    attempt, worker = AttemptFactory(), WorkerFactory()
    report = report_for(attempt)
    assert at_once([lambda: lifecycle.record_report(report, worker)] * THREADS) == {"done": THREADS}
    assert Verdict.objects.count() == QuotaEntry.objects.count() == 1


def test_report_and_cancellation_and_expiry_agree_on_one_end() -> None:
    user = MembershipFactory().user
    for _ in range(5):
        attempt, worker = AttemptFactory(), WorkerFactory()
        report = report_for(attempt)
        at_once(
            [
                lambda: lifecycle.record_report(report, worker),  # noqa: B023
                lambda: lifecycle.cancel_run(attempt.evaluation.run, user),  # noqa: B023
                lambda: lifecycle.expire_lease(attempt.pk),  # noqa: B023
            ]
        )
        attempt.refresh_from_db()
        assert Verdict.objects.filter(attempt=attempt).exists() == (attempt.state == "recorded")
        assert attempt.state in {"recorded", "cancelled"}


def test_verdicts_that_land_together_are_all_in_the_score() -> None:
    suite = SuiteFactory(size=THREADS)
    evaluation, worker = EvaluationFactory(suite=suite), WorkerFactory()
    reports = []
    for version in suite.problem_versions.all():
        submission = SubmissionFactory(run=evaluation.run, problem=version.problem)
        attempt = AttemptFactory(evaluation=evaluation, submission=submission)
        reports.append(report_for(attempt, code=Code.CORRECT))
    outcomes = at_once([lambda r=r: lifecycle.record_report(r, worker) for r in reports])  # type: ignore[misc]
    assert outcomes == {"done": THREADS}
    evaluation.refresh_from_db()
    assert evaluation.state == "completed"
    assert EvaluationScore.objects.get().correct == THREADS


def test_button_pressed_twice_at_once_makes_one_run() -> None:
    suite, model = SuiteFactory(size=1), RankedModelFactory()
    user = MembershipFactory(team=model.team).user
    number = suite.problem_versions.get().problem.number
    upload = preview(user, [Sent(f"{number}.py", BytesIO(b"def solution(x): return x"))], suite=suite)
    declaration = Declaration(
        team=model.team,
        model=model,
        track="single-shot",
        backend="pytorch",
        precision="fp32",
        targets=[TargetFactory()],
        licence="MIT",
    )
    outcomes = at_once([lambda: confirm(upload, declaration, user=user, suite=suite)] * THREADS)
    assert outcomes == {"done": THREADS}
    assert Run.objects.count() == Submission.objects.count() == Attempt.objects.count() == 1
