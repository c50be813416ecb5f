"""Every submission gets exactly one verdict, whatever arrives, in whatever order, however often."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.db import IntegrityError, transaction
from django.test.utils import CaptureQueriesContext

from evaluator.contract import Claim, Code, Progress
from leaderboard import lifecycle, reaping, scores
from leaderboard.models import (
    Artifact,
    Attempt,
    AttemptState,
    AuditEvent,
    Evaluation,
    EvaluationScore,
    EvaluationState,
    QuotaEntry,
    Review,
    RunState,
    Standing,
    Verdict,
    Worker,
)
from tests.factories import (
    AttemptFactory,
    EvaluationFactory,
    SubmissionFactory,
    SuiteFactory,
    TargetFactory,
    UserFactory,
    VerdictFactory,
    WorkerFactory,
    evaluated_run,
)
from tests.leaderboard.conftest import FakeBroker
from tests.reports import report_for

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.fixture
def suite() -> Any:
    return SuiteFactory(size=3)


@pytest.fixture
def attempt(suite: Any) -> Attempt:
    """The queued first attempt of the only submission of an evaluation."""
    evaluation = EvaluationFactory(suite=suite)
    problem = suite.problem_versions.first().problem
    return AttemptFactory(
        evaluation=evaluation, submission=SubmissionFactory(run=evaluation.run, problem=problem), sent_at=NOW
    )


@pytest.fixture
def worker() -> Worker:
    return WorkerFactory()


def claim(attempt: Attempt, **changes: Any) -> Claim:
    return Claim(**{"attempt_id": attempt.pk, "attempt_number": attempt.number, "host": "gpu-host", **changes})


def progress(attempt: Attempt, sequence: int = 1, phase: str = "trials", done: int = 3) -> Progress:
    return Progress(attempt_id=attempt.pk, sequence=sequence, phase=phase, done=done, total=5)


def test_claim_leases_and_starts_the_evaluation(attempt: Attempt, worker: Worker) -> None:
    lifecycle.lease_attempt(claim(attempt), worker, at=NOW)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.worker, attempt.host) == (AttemptState.LEASED, worker, "gpu-host")
    assert attempt.lease_expires_at == NOW + timedelta(seconds=60)
    assert Evaluation.objects.get().state == EvaluationState.RUNNING


def test_attempt_is_leased_to_one_worker_only(attempt: Attempt, worker: Worker) -> None:
    lifecycle.lease_attempt(claim(attempt), worker)
    with pytest.raises(lifecycle.Stale, match="held by worker"):
        lifecycle.lease_attempt(claim(attempt), WorkerFactory())
    lifecycle.lease_attempt(claim(attempt), worker)  # delivered twice: renews


def test_worker_of_another_target_gets_nothing(attempt: Attempt) -> None:
    stranger = WorkerFactory(target=TargetFactory(name="h100x4"))
    for deliver in (
        lambda: lifecycle.lease_attempt(claim(attempt), stranger),
        lambda: lifecycle.record_progress(progress(attempt), stranger),
        lambda: lifecycle.record_report(report_for(attempt), stranger),
    ):
        with pytest.raises(lifecycle.Stale, match="another target"):
            deliver()
    assert not Verdict.objects.exists()


def test_progress_renews_the_lease_and_overtaken_progress_shows_nothing(attempt: Attempt, worker: Worker) -> None:
    lifecycle.record_progress(progress(attempt, 5, "timing"), worker, at=NOW)  # its claim was lost on the way
    lifecycle.record_progress(progress(attempt, 4, "trials"), worker, at=NOW + timedelta(seconds=30))
    attempt.refresh_from_db()
    assert (attempt.state, attempt.phase, attempt.sequence) == (AttemptState.LEASED, "timing", 5)
    assert attempt.lease_expires_at == NOW + timedelta(seconds=90)


def test_report_becomes_verdict_artifact_score_and_charge(
    attempt: Attempt, worker: Worker, messages: FakeBroker, django_capture_on_commit_callbacks: Any
) -> None:
    lifecycle.lease_attempt(claim(attempt), worker)
    with django_capture_on_commit_callbacks(execute=True):
        verdict = lifecycle.record_report(report_for(attempt), worker)
    assert verdict is not None
    assert (verdict.code, verdict.decision, verdict.speedup, verdict.utilisation) == ("correct", "faster", 2.0, 0.5)
    attempt.refresh_from_db()
    assert attempt.state == AttemptState.RECORDED
    assert Artifact.objects.get().attempt == attempt
    assert QuotaEntry.objects.get().seconds == 12.5
    evaluation = Evaluation.objects.get()
    assert evaluation.state == EvaluationState.COMPLETED
    assert (evaluation.score.correct, evaluation.score.problems, evaluation.score.faster) == (1, 3, 1)
    assert messages.closed == [attempt.pk]
    assert AuditEvent.objects.filter(action="record verdict", actor_name=f"worker {worker.name}").count() == 1


def test_report_delivered_twice_is_recorded_once(attempt: Attempt, worker: Worker) -> None:
    first = lifecycle.record_report(report_for(attempt), worker)
    second = lifecycle.record_report(report_for(attempt, code=Code.WRONG_VALUES), worker)
    assert second == first
    assert Verdict.objects.get().code == "correct"
    assert QuotaEntry.objects.count() == Artifact.objects.count() == 1


def test_report_of_another_worker_is_refused_before_and_after(attempt: Attempt, worker: Worker) -> None:
    lifecycle.lease_attempt(claim(attempt), worker)
    with pytest.raises(lifecycle.Stale, match="held by worker"):
        lifecycle.record_report(report_for(attempt), WorkerFactory())
    lifecycle.record_report(report_for(attempt), worker)
    with pytest.raises(lifecycle.Stale, match="held by worker"):
        lifecycle.record_report(report_for(attempt), WorkerFactory())


def test_evaluation_is_complete_with_its_last_verdict(attempt: Attempt, worker: Worker, suite: Any) -> None:
    evaluation = attempt.evaluation
    other = AttemptFactory(
        evaluation=evaluation,
        submission=SubmissionFactory(run=evaluation.run, problem=suite.problem_versions.last().problem),
    )
    lifecycle.record_report(report_for(attempt), worker)
    evaluation.refresh_from_db()
    assert evaluation.state == EvaluationState.RUNNING
    assert not EvaluationScore.objects.ranked().exists()
    lifecycle.record_report(report_for(other, code=Code.DEADLOCK), worker)
    evaluation.refresh_from_db()
    assert evaluation.state == EvaluationState.COMPLETED
    assert evaluation.score.failures == {"deadlock": 1}
    assert EvaluationScore.objects.ranked().get() == evaluation.score


def test_lease_that_ends_is_requeued_twice_then_the_failure_is_ours(
    attempt: Attempt, worker: Worker, messages: FakeBroker, django_capture_on_commit_callbacks: Any
) -> None:
    for number in (1, 2, 3):
        current = Attempt.objects.active().get()
        assert current.number == number
        lifecycle.lease_attempt(claim(current), worker, at=NOW)
        assert not lifecycle.expire_lease(current.pk, at=NOW + timedelta(seconds=60))  # not over yet
        with django_capture_on_commit_callbacks(execute=True):
            assert lifecycle.expire_lease(current.pk, at=NOW + timedelta(seconds=61))
    verdict = Verdict.objects.get()
    assert verdict.code == "harness_failure"
    assert verdict.message.startswith("Not judged: 3 attempts failed for reasons of ours")
    assert [job.attempt_number for _, job in messages.jobs] == [2, 3]
    assert not QuotaEntry.objects.exists()
    score = EvaluationScore.objects.get()
    assert (score.unjudged, score.judged) == (1, 0)
    assert not EvaluationScore.objects.ranked().exists()


def test_failure_of_ours_that_a_judge_reports_is_tried_elsewhere(attempt: Attempt, worker: Worker) -> None:
    failed = report_for(attempt, code=Code.HARNESS_FAILURE, message="The reference failed on this host.")
    assert lifecycle.record_report(failed, worker) is None
    attempt.refresh_from_db()
    assert (attempt.state, attempt.reason) == (
        AttemptState.LOST,
        "harness failure: The reference failed on this host.",
    )
    assert Attempt.objects.active().get().number == 2
    assert not Verdict.objects.exists()


def test_late_report_of_a_lost_attempt_is_refused(attempt: Attempt, worker: Worker) -> None:
    lifecycle.lease_attempt(claim(attempt), worker, at=NOW)
    lifecycle.expire_lease(attempt.pk, at=NOW + timedelta(seconds=61))
    with pytest.raises(lifecycle.Stale, match="is lost"):
        lifecycle.record_report(report_for(attempt), worker)
    following = Attempt.objects.active().get()
    lifecycle.record_report(report_for(following), worker)
    assert Verdict.objects.get().attempt == following


def test_late_report_after_our_own_verdict_changes_nothing(attempt: Attempt, worker: Worker) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(number=lifecycle.MAX_ATTEMPTS)
    attempt.refresh_from_db()
    lifecycle.lease_attempt(claim(attempt), worker, at=NOW)
    lifecycle.expire_lease(attempt.pk, at=NOW + timedelta(seconds=61))
    with pytest.raises(lifecycle.Stale, match="is recorded"):
        lifecycle.record_report(report_for(attempt), worker)
    assert Verdict.objects.get().code == "harness_failure"


def test_claim_with_the_number_of_another_delivery_is_refused(attempt: Attempt, worker: Worker) -> None:
    with pytest.raises(lifecycle.Stale, match="number 1, the claim says 2"):
        lifecycle.lease_attempt(claim(attempt, attempt_number=2), worker)
    with pytest.raises(lifecycle.Stale, match="there is no attempt"):
        lifecycle.lease_attempt(claim(attempt, attempt_id=uuid4()), worker)


@pytest.mark.parametrize("code", [Code.IMPOSSIBLE_TIME, Code.INTEGRITY])
def test_suspicious_verdict_is_held_for_review(attempt: Attempt, worker: Worker, code: Code) -> None:
    lifecycle.record_report(report_for(attempt, code=code, message="Faster than the links allow."), worker)
    assert Verdict.objects.get().standing == Standing.HELD
    assert Review.objects.get().reason == "Faster than the links allow."


@pytest.mark.parametrize("standing", [Standing.HELD, Standing.DISQUALIFIED, Standing.DUPLICATE])
def test_correct_verdict_that_does_not_count_is_in_no_figure(suite: Any, standing: Standing) -> None:
    evaluation = evaluated_run("faster", "faster", suite=suite)
    Verdict.objects.filter(pk=Verdict.objects.first().pk).update(standing=standing)
    score = scores.materialise(evaluation)
    assert (score.correct, score.faster, score.compatible_correct) == (1, 1, 0)
    assert score.solved.bit_count() == 1


@pytest.mark.parametrize("state", [AttemptState.QUEUED, AttemptState.LEASED])
def test_cancel_works_from_every_state(attempt: Attempt, worker: Worker, state: AttemptState) -> None:
    if state == AttemptState.LEASED:
        lifecycle.lease_attempt(claim(attempt), worker)
    actor = UserFactory()
    assert lifecycle.cancel_run(attempt.evaluation.run, actor, reason="wrong files") == 1
    attempt.refresh_from_db()
    assert (attempt.state, attempt.reason) == (AttemptState.CANCELLED, "wrong files")
    assert Evaluation.objects.get().state == EvaluationState.CANCELLED
    with pytest.raises(lifecycle.Stale, match="is cancelled: wrong files"):
        lifecycle.record_report(report_for(attempt), worker)
    assert lifecycle.cancel_run(attempt.evaluation.run, actor) == 0


def test_withdrawn_run_leaves_the_board_and_keeps_its_verdicts(suite: Any) -> None:
    evaluation = evaluated_run("faster", suite=suite)
    assert EvaluationScore.objects.ranked().exists()
    assert lifecycle.withdraw_run(evaluation.run, UserFactory(), reason="wrong model")
    assert not EvaluationScore.objects.ranked().exists()
    assert Verdict.objects.count() == 1
    assert not lifecycle.withdraw_run(evaluation.run, UserFactory())  # once is enough
    assert AuditEvent.objects.filter(action="withdraw run").count() == 1


def test_disqualification_can_be_undone_but_a_withdrawal_cannot(suite: Any) -> None:
    run, actor = evaluated_run("faster", suite=suite).run, UserFactory()
    lifecycle.disqualify_run(run, actor, reason="hard-coded outputs")
    run.refresh_from_db()
    assert (run.state, run.state_reason) == (RunState.DISQUALIFIED, "hard-coded outputs")
    assert lifecycle.reinstate_run(run, actor, reason="appeal upheld")
    lifecycle.withdraw_run(run, actor)
    assert not lifecycle.reinstate_run(run, actor, reason="no")


def test_database_itself_refuses_a_second_active_attempt_and_a_second_verdict(attempt: Attempt, suite: Any) -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        AttemptFactory(evaluation=attempt.evaluation, submission=attempt.submission, number=2)
    verdict = VerdictFactory()
    with pytest.raises(IntegrityError), transaction.atomic():
        VerdictFactory(
            evaluation=verdict.evaluation,
            submission=verdict.submission,
            attempt=AttemptFactory(
                evaluation=verdict.evaluation, submission=verdict.submission, number=2, state="lost"
            ),
        )


def test_reaper_ends_what_ran_out_and_leaves_the_rest(attempt: Attempt, worker: Worker, suite: Any) -> None:
    fresh = AttemptFactory(evaluation=EvaluationFactory(suite=suite), leased=True)
    lifecycle.lease_attempt(claim(attempt), worker, at=NOW)
    Attempt.objects.filter(pk=fresh.pk).update(lease_expires_at=NOW + timedelta(seconds=600))
    assert reaping.reap(at=NOW + timedelta(seconds=61)).expired == 1
    assert Attempt.objects.get(pk=fresh.pk).state == AttemptState.LEASED


def test_reaper_waits_for_signs_of_life_that_are_not_read_yet(
    attempt: Attempt, worker: Worker, messages: FakeBroker
) -> None:
    lifecycle.lease_attempt(claim(attempt), worker, at=NOW)
    messages.lengths["results"] = 1
    assert reaping.reap(at=NOW + timedelta(seconds=61)).expired == 0
    assert reaping.reap(at=NOW + timedelta(seconds=660 + 1)).expired == 1  # but not for ever


def test_reaper_only_looks_on_its_first_visit_after_a_pause(
    attempt: Attempt, worker: Worker, messages: FakeBroker
) -> None:
    lifecycle.lease_attempt(claim(attempt), worker, at=NOW)
    messages.reaper_known = False
    assert reaping.reap(at=NOW + timedelta(hours=9)).expired == 0
    messages.reaper_known = True
    assert reaping.reap(at=NOW + timedelta(hours=9, seconds=30)).expired == 1


def test_reaper_does_nothing_without_the_broker(attempt: Attempt, worker: Worker, messages: FakeBroker) -> None:
    lifecycle.lease_attempt(claim(attempt), worker, at=NOW)
    messages.up = False
    assert reaping.reap(at=NOW + timedelta(hours=1)) == reaping.Reaped()


def test_reaper_sends_what_the_broker_never_got_or_lost(attempt: Attempt, suite: Any, messages: FakeBroker) -> None:
    unsent = AttemptFactory(evaluation=EvaluationFactory(suite=suite))
    messages.lengths["eval.cpu-gloo"] = 0
    assert reaping.reap(at=NOW + timedelta(seconds=10)).resent == 1  # the one sent at NOW may still be on its way
    assert [job.attempt_id for _, job in messages.jobs] == [unsent.pk]
    assert reaping.reap(at=NOW + timedelta(seconds=65)).resent == 1
    assert messages.jobs[-1][1].attempt_id == attempt.pk


def test_reaper_does_not_copy_a_long_queue(attempt: Attempt, messages: FakeBroker) -> None:
    messages.lengths["eval.cpu-gloo"] = 1
    assert reaping.reap(at=NOW + timedelta(hours=9)).resent == 0


def test_recording_asks_the_same_number_of_queries_for_1_and_for_100_submissions(
    suite: Any, worker: Worker, django_assert_max_num_queries: Any
) -> None:
    from django.db import connection

    counts = []
    for size in (1, 100):
        evaluation = EvaluationFactory(suite=suite)
        problem = suite.problem_versions.first().problem
        submissions = [SubmissionFactory(run=evaluation.run, problem=problem, sample=i) for i in range(size)]
        attempts = [AttemptFactory(evaluation=evaluation, submission=s) for s in submissions]
        with CaptureQueriesContext(connection) as queries:
            lifecycle.record_report(report_for(attempts[0]), worker)
        counts.append(len(queries))
    assert counts[1] <= counts[0] <= 40  # the single one also completes its evaluation
