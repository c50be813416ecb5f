"""What we failed to judge can be tried again, by one click, and nothing else changes by it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from evaluator.contract import Claim, Code
from leaderboard import lifecycle, reaping
from leaderboard.models import (
    Attempt,
    AttemptState,
    AuditEvent,
    Evaluation,
    EvaluationScore,
    EvaluationState,
    QuotaEntry,
    SourceFile,
    Submission,
    Upload,
    UploadState,
    Verdict,
    Worker,
)
from tests.factories import (
    AttemptFactory,
    EvaluationFactory,
    SourceFileFactory,
    SubmissionFactory,
    SuiteFactory,
    UserFactory,
    WorkerFactory,
)
from tests.leaderboard.conftest import FakeBroker
from tests.reports import report_for

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


@pytest.fixture
def worker() -> Worker:
    return WorkerFactory()


@pytest.fixture
def evaluation() -> Evaluation:
    """Two files: one judged, one that we failed to judge three times."""
    suite = SuiteFactory(size=2)
    evaluation = EvaluationFactory(suite=suite)
    first, second = (
        AttemptFactory(evaluation=evaluation, submission=SubmissionFactory(run=evaluation.run, problem=version.problem))
        for version in suite.problem_versions.order_by("problem__number")
    )
    lifecycle.record_report(report_for(first, code=Code.DEADLOCK), WorkerFactory())
    lose(second.submission)
    evaluation.refresh_from_db()
    return evaluation


def lose(submission: Submission) -> None:
    """Let three workers die over it."""
    for _ in range(lifecycle.MAX_ATTEMPTS):
        attempt = Attempt.objects.active().get(submission=submission)
        claim = Claim(attempt_id=attempt.pk, attempt_number=attempt.number)
        lifecycle.lease_attempt(claim, WorkerFactory(), at=NOW)
        lifecycle.expire_lease(attempt.pk, at=NOW + HOUR)


def test_retry_queues_what_failed_for_our_reasons_and_only_that(evaluation: Evaluation, worker: Worker) -> None:
    assert evaluation.state == EvaluationState.COMPLETED
    assert lifecycle.retry_failed(evaluation, UserFactory()) == 1
    evaluation.refresh_from_db()
    assert (evaluation.state, evaluation.finished_at) == (EvaluationState.RUNNING, None)
    attempt = Attempt.objects.active().get()
    assert attempt.number == 4
    assert Verdict.objects.get().code == "deadlock"
    assert (evaluation.score.judged, evaluation.score.unjudged) == (1, 0)
    lifecycle.record_report(report_for(attempt), worker)
    evaluation.refresh_from_db()
    assert evaluation.state == EvaluationState.COMPLETED
    assert EvaluationScore.objects.ranked().get().correct == 1


def test_retry_twice_is_retry_once(evaluation: Evaluation) -> None:
    actor = UserFactory()
    assert [lifecycle.retry_failed(evaluation, actor) for _ in range(2)] == [1, 0]
    assert AuditEvent.objects.filter(action="retry failed").count() == 1


def test_retry_gets_three_attempts_again_and_is_never_charged_for_ours(evaluation: Evaluation) -> None:
    lifecycle.retry_failed(evaluation, UserFactory())
    lose(Attempt.objects.active().get().submission)
    verdict = Verdict.objects.get(code="harness_failure")
    assert verdict.attempt.number == 6
    assert QuotaEntry.objects.count() == 1, "the deadlock"


def test_report_of_before_the_retry_comes_too_late(evaluation: Evaluation) -> None:
    """Also if it was a report, not a lost worker, that said that we failed."""
    failed = Verdict.objects.get(code="harness_failure")
    Attempt.objects.filter(pk=failed.attempt_id).update(reason="")
    lifecycle.retry_failed(evaluation, UserFactory())
    old = Attempt.objects.get(pk=failed.attempt_id)
    with pytest.raises(lifecycle.Stale, match="tried again on request"):
        lifecycle.record_report(report_for(old), old.worker)
    assert not Verdict.objects.filter(submission=old.submission).exists()


@pytest.mark.parametrize("end", ["cancelled", "withdrawn"])
def test_what_is_over_for_good_is_not_tried_again(evaluation: Evaluation, end: str) -> None:
    actor = UserFactory()
    if end == "cancelled":
        Evaluation.objects.filter(pk=evaluation.pk).update(state=EvaluationState.CANCELLED)
    else:
        lifecycle.withdraw_run(evaluation.run, actor)
    assert lifecycle.retry_failed(evaluation, actor) == 0
    assert Verdict.objects.count() == 2


def test_retries_end_before_the_contract_does(evaluation: Evaluation) -> None:
    failed = Verdict.objects.get(code="harness_failure").attempt
    Attempt.objects.filter(pk=failed.pk).update(number=lifecycle.MOST_ATTEMPTS)
    assert lifecycle.retry_failed(evaluation, UserFactory()) == 0


def test_cancelled_retry_leaves_the_file_without_verdict(evaluation: Evaluation) -> None:
    actor = UserFactory()
    lifecycle.retry_failed(evaluation, actor)
    assert lifecycle.cancel_evaluation(evaluation, actor)
    assert not Attempt.objects.active().exists()
    assert Verdict.objects.get().code == "deadlock"


# The reaper's other duties -------------------------------------------------------------------------------------------


def preview(sources: list[SourceFile], at: datetime, state: str = UploadState.PREVIEWED) -> Upload:
    upload = Upload.objects.create(user=UserFactory(), state=state)
    Upload.objects.filter(pk=upload.pk).update(created_at=at)
    upload.sources.set(sources)
    return upload


def test_uploads_that_nobody_confirmed_go_after_their_time(settings: Any, messages: FakeBroker) -> None:
    settings.PREVIEW_SECONDS = 3_600
    only_here, shared, submitted = SourceFileFactory.create_batch(3)
    SubmissionFactory(source=submitted)
    old = preview([only_here, shared, submitted], NOW - 2 * HOUR)
    fresh = preview([shared], NOW)
    confirmed = preview([], NOW - 2 * HOUR, UploadState.CONFIRMED)
    messages.up = False  # none of this needs the broker
    assert reaping.reap(at=NOW).forgotten == 1
    assert set(Upload.objects.all()) == {fresh, confirmed}
    assert old not in Upload.objects.all()
    assert set(SourceFile.objects.all()) == {shared, submitted}


def test_attempts_put_back_by_the_reaper_are_leased_by_somebody_else(messages: FakeBroker) -> None:
    attempt = AttemptFactory(leased=True, lease_expires_at=NOW, state=AttemptState.LEASED)
    reaping.reap(at=NOW + HOUR)
    again = Attempt.objects.active().get()
    assert (again.number, again.worker, again.submission) == (2, None, attempt.submission)
    assert messages.jobs[-1][1].attempt_id == again.pk or again.sent_at is None
