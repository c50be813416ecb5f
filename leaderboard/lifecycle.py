"""The one state machine of runs, evaluations and attempts. Nothing else changes their ``state``.

A verb does one transition, in one transaction: lock the evaluation, change the state only where it still is what the
transition starts from, write the audit trail, tell others on commit. Attempts go

    queued ──► leased ──► recorded          a report came, or a verdict of ours
       │          └─────► lost ──► (next attempt, queued)
       └──────────┴─────► cancelled

A recorded attempt whose verdict says that we failed becomes lost, too, when somebody asks for another round.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import structlog
from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from evaluator.contract import Claim, Code, Decline, Progress, Report
from leaderboard import audit, broker, dispatch, quotas, scores, tallies, turns, verdicts, versions
from leaderboard.models import (
    ACTIVE_STATES,
    Attempt,
    AttemptState,
    Evaluation,
    EvaluationState,
    Run,
    RunState,
    User,
    Verdict,
    Worker,
    WorkerState,
)

log = structlog.get_logger(__name__)

MAX_ATTEMPTS = 3  # a submission is requeued at most twice for reasons that are ours, until somebody asks for a retry
DECLINED_SECONDS = 600.0  # after which an attempt that a host could not serve is offered again
MOST_ATTEMPTS = 99  # of one submission, all retries included; the contract counts to 100


class Stale(Exception):
    """The message is about an attempt that is over, or that another worker holds. The text says which."""


def queue_attempts(evaluation: Evaluation, submission_ids: Iterable[int]) -> list[Attempt]:
    """The first attempt for each of the submissions, in turn with those of other teams; wake-ups follow on commit."""
    attempts = [_new_attempt(evaluation, submission_id) for submission_id in submission_ids]
    turns.assign(evaluation, attempts)
    Attempt.objects.bulk_create(attempts)
    dispatch.refill_on_commit(evaluation.target_id)
    return attempts


@transaction.atomic
def lease_attempt(claim: Claim, worker: Worker, *, at: datetime | None = None) -> None:
    """Give the attempt to the worker that claims it. Claiming what one holds renews the lease.

    Raises ``Stale`` if the attempt is over, has another number or is held by another worker.
    """
    attempt = _locked(claim.attempt_id)
    if attempt.number != claim.attempt_number:
        raise Stale(f"attempt {attempt.pk} is number {attempt.number}, the claim says {claim.attempt_number}")
    _lease(attempt, worker, at or timezone.now(), host=claim.host)


@transaction.atomic
def record_progress(progress: Progress, worker: Worker, *, at: datetime | None = None) -> None:
    """Renew the lease and keep where the attempt stands. A message that was overtaken renews the lease only.

    Leases a queued attempt: its claim was lost on the way. Raises ``Stale`` like ``lease_attempt``.
    """
    attempt = _locked(progress.attempt_id)
    _lease(attempt, worker, at or timezone.now())
    if progress.sequence > attempt.sequence:
        Attempt.objects.filter(pk=attempt.pk).update(
            sequence=progress.sequence,
            phase=progress.phase,
            phase_done=progress.done,
            phase_total=progress.total,
            note=progress.note,
        )


@transaction.atomic
def record_report(report: Report, worker: Worker, *, at: datetime | None = None) -> Verdict | None:
    """Make the report the verdict of the attempt's submission, and recompute the scores of its evaluation.

    A second delivery of the same report changes nothing and returns the verdict that stands. A failure of ours is
    tried again elsewhere, as long as attempts are left; then None is returned. Raises ``Stale`` if the attempt was
    given up, cancelled, or is held by another worker.
    """
    now = at or timezone.now()
    attempt = _locked(report.attempt_id)
    if attempt.state == AttemptState.RECORDED and not attempt.reason:
        _check_holder(attempt, worker)
        return attempt.verdict
    _check_active(attempt)
    _check_holder(attempt, worker)
    if attempt.state == AttemptState.QUEUED:
        _lease(attempt, worker, now, host=report.host)
    verdicts.keep_report(attempt, report)
    tallies.note_report(attempt, report)
    if report.code is Code.HARNESS_FAILURE and not _is_last_of_round(attempt):
        _give_up(attempt, f"harness failure: {report.message}", now)
        return None
    return _conclude(attempt, verdicts.from_report(attempt, report, now), now, actor=worker)


@transaction.atomic
def decline_attempt(decline: Decline, worker: Worker, *, at: datetime | None = None) -> None:
    """Put a queued attempt aside for a while: this host cannot serve it, another may. Nothing counts against it.

    The reason is shown while it waits. Raises ``Stale`` if it is over or already held.
    """
    attempt = _locked(decline.attempt_id)
    _check_holder(attempt, worker)
    if attempt.state != AttemptState.QUEUED:
        raise Stale(f"attempt {attempt.pk} is {attempt.state}, not queued")
    until = (at or timezone.now()) + timedelta(seconds=DECLINED_SECONDS)
    if attempt.note != decline.reason:  # once, not every time that it is offered to the same hosts
        audit.write("decline attempt", attempt, actor=worker, reason=decline.reason)
    _move(attempt, AttemptState.QUEUED, sent_at=None, wait_until=until, note=decline.reason)
    dispatch.refill_on_commit(attempt.target_id)
    log.warning("attempt declined", **log_ids(attempt), worker=worker.name, reason=decline.reason)


@transaction.atomic
def expire_lease(attempt_id: UUID, *, at: datetime | None = None) -> bool:
    """Take a leased attempt from a worker whose lease ended before ``at``. False if it was renewed or is over."""
    now = at or timezone.now()
    attempt = _locked(attempt_id)
    if attempt.state != AttemptState.LEASED or attempt.lease_expires_at is None or attempt.lease_expires_at >= now:
        return False
    _give_up(attempt, f"worker {attempt.worker} gave no sign of life for {settings.LEASE_SECONDS:.0f} s", now)
    return True


@transaction.atomic
def cancel_run(run: Run, actor: User, *, reason: str = "") -> int:
    """Stop every evaluation of the run that is not finished; returns how many. Verdicts that stand remain."""
    audit.write("cancel run", run, actor=actor, reason=reason)
    return _cancel_evaluations(run.evaluations.all(), actor, reason or "the run was cancelled")


@transaction.atomic
def cancel_evaluation(evaluation: Evaluation, actor: User, *, reason: str = "") -> bool:
    """Stop one evaluation. False if it was already over."""
    evaluations = Evaluation.objects.filter(pk=evaluation.pk)
    return _cancel_evaluations(evaluations, actor, reason or "the evaluation was cancelled") == 1


@transaction.atomic
def retry_failed(evaluation: Evaluation, actor: User) -> int:
    """Try again what we failed to judge: a new round of attempts for each such submission; returns how many.

    The verdicts that say so go; their attempts and the audit trail keep what happened. Nothing is charged for it.
    """
    evaluation = Evaluation.objects.select_for_update().get(pk=evaluation.pk)
    if not may_go_on(evaluation) or evaluation.run.state != RunState.ACTIVE:
        return 0
    failed = list(retriable(evaluation).select_related("attempt"))
    reason = "tried again on request"
    Verdict.objects.filter(pk__in=[verdict.pk for verdict in failed]).delete()
    Attempt.objects.filter(pk__in=[v.attempt_id for v in failed], state=AttemptState.RECORDED).update(
        state=AttemptState.LOST, reason=reason
    )
    if failed:
        attempts = [_new_attempt(evaluation, v.submission_id, number=v.attempt.number + 1) for v in failed]
        turns.assign(evaluation, attempts)
        Attempt.objects.bulk_create(attempts)
        Evaluation.objects.filter(pk=evaluation.pk).update(state=EvaluationState.RUNNING, finished_at=None)
        scores.materialise(evaluation)
        messages = sorted({verdict.message for verdict in failed})
        audit.write("retry failed", evaluation, actor=actor, submissions=len(failed), messages=messages[:10])
        dispatch.refill_on_commit(evaluation.target_id)
    return len(failed)


def may_go_on(evaluation: Evaluation) -> bool:
    """Whether the evaluation was not stopped."""
    return evaluation.state != EvaluationState.CANCELLED


def retriable(evaluation: Evaluation) -> QuerySet[Verdict]:
    """Verdicts of the evaluation that say that we failed, and that may be tried once more."""
    return Verdict.objects.filter(
        evaluation=evaluation, code=Code.HARNESS_FAILURE, attempt__number__lte=MOST_ATTEMPTS - MAX_ATTEMPTS
    )


@transaction.atomic
def withdraw_run(run: Run, actor: User, *, reason: str = "") -> bool:
    """Take the run off the boards and stop what still runs; its page stays, empty. False if it was not active."""
    return _leave_board(run, RunState.WITHDRAWN, "withdraw run", actor, reason)


@transaction.atomic
def disqualify_run(run: Run, actor: User, *, reason: str) -> bool:
    """A maintainer takes the run off the boards; the reason is shown. False if it was not active."""
    return _leave_board(run, RunState.DISQUALIFIED, "disqualify run", actor, reason)


@transaction.atomic
def reinstate_run(run: Run, actor: User, *, reason: str) -> bool:
    """Undo a disqualification. False if there was none; a withdrawal is not undone."""
    changed = Run.objects.filter(pk=run.pk, state=RunState.DISQUALIFIED).update(state=RunState.ACTIVE, state_reason="")
    if changed:
        audit.write("reinstate run", run, actor=actor, reason=reason)
        versions.bump()
    return bool(changed)


def _new_attempt(evaluation: Evaluation, submission_id: int, **fields: Any) -> Attempt:
    return Attempt(
        evaluation=evaluation,
        target_id=evaluation.target_id,
        in_campaign=evaluation.campaign_id is not None,
        submission_id=submission_id,
        **fields,
    )


def _locked(attempt_id: UUID) -> Attempt:
    """The attempt, with its evaluation locked: always the evaluation first, so that no two wait for each other.

    Raises ``Stale`` if there is none.
    """
    evaluations = Evaluation.objects.select_for_update().filter(attempts=attempt_id)
    if not list(evaluations):
        raise Stale(f"there is no attempt {attempt_id}")
    return Attempt.objects.select_related("evaluation__run", "evaluation__target", "submission", "worker").get(
        pk=attempt_id
    )


def _lease(attempt: Attempt, worker: Worker, now: datetime, *, host: str = "") -> None:
    _check_active(attempt)
    _check_holder(attempt, worker)
    until = now + timedelta(seconds=settings.LEASE_SECONDS)
    if attempt.state == AttemptState.LEASED:
        _move(attempt, AttemptState.LEASED, lease_expires_at=until)
        return
    if worker.state in (WorkerState.QUARANTINED, WorkerState.FAILING):
        raise Stale(f"worker {worker.name} is {worker.state} and may begin nothing: {worker.state_reason}")
    _move(attempt, AttemptState.LEASED, worker=worker, host=host, leased_at=now, lease_expires_at=until)
    Evaluation.objects.filter(pk=attempt.evaluation_id, state=EvaluationState.QUEUED).update(
        state=EvaluationState.RUNNING
    )
    tallies.note_start(attempt, now)
    dispatch.refill_on_commit(attempt.target_id)
    log.info("attempt leased", **log_ids(attempt), worker=worker.name)


def _move(attempt: Attempt, to: AttemptState, **fields: Any) -> None:
    """Compare and set: change the row only if it still is in the state that was read. Raises ``Stale`` if it is not."""
    if not Attempt.objects.filter(pk=attempt.pk, state=attempt.state).update(state=to, **fields):
        raise Stale(f"attempt {attempt.pk} is no longer {attempt.state}")
    attempt.state = to
    for name, value in fields.items():
        setattr(attempt, name, value)


def _check_active(attempt: Attempt) -> None:
    if attempt.state not in ACTIVE_STATES:
        raise Stale(f"attempt {attempt.pk} is {attempt.state}: {attempt.reason or 'it is over'}")


def _check_holder(attempt: Attempt, worker: Worker) -> None:
    if worker.target_id != attempt.evaluation.target_id:
        raise Stale(f"worker {worker.name} evaluates for another target than attempt {attempt.pk}")
    if attempt.worker_id not in (None, worker.pk):
        raise Stale(f"attempt {attempt.pk} is held by worker {attempt.worker}, not by {worker.name}")


def _is_last_of_round(attempt: Attempt) -> bool:
    """Whether no further attempt follows by itself: a round has three, and each retry on request begins a new one."""
    return attempt.number % MAX_ATTEMPTS == 0


def _give_up(attempt: Attempt, reason: str, now: datetime) -> None:
    """Declare the attempt lost; queue the next one, or conclude with a verdict that says that the failure is ours."""
    if _is_last_of_round(attempt):
        _conclude(attempt, verdicts.harness_failure(attempt, reason, now), now, reason=reason)
        return
    _finish(attempt, AttemptState.LOST, now, reason)
    front = turns.front_of(attempt.evaluation)
    following = _new_attempt(attempt.evaluation, attempt.submission_id, number=attempt.number + 1, turn=front)
    following.save(force_insert=True)
    audit.write("requeue attempt", attempt, reason=reason, next_attempt=str(following.pk))
    dispatch.refill_on_commit(attempt.target_id)


def _conclude(
    attempt: Attempt, verdict: Verdict, now: datetime, *, actor: Worker | None = None, reason: str = ""
) -> Verdict:
    """Store the verdict, close the attempt, complete the evaluation if it was the last, recompute the scores."""
    _finish(attempt, AttemptState.RECORDED, now, reason)
    verdict.save(force_insert=True)
    verdicts.hold_if_suspicious(verdict)
    quotas.charge(verdict)
    evaluation = attempt.evaluation
    open_submissions = evaluation.run.submissions.exclude(verdicts__evaluation=evaluation).exists()
    if not open_submissions:
        Evaluation.objects.filter(pk=evaluation.pk, state__in=(EvaluationState.QUEUED, EvaluationState.RUNNING)).update(
            state=EvaluationState.COMPLETED, finished_at=now
        )
    scores.materialise(evaluation)
    audit.write("record verdict", attempt, actor=actor, reason=reason, code=verdict.code, decision=verdict.decision)
    log.info("verdict recorded", **log_ids(attempt), code=verdict.code, decision=verdict.decision)
    return verdict


def _finish(attempt: Attempt, state: AttemptState, now: datetime, reason: str) -> None:
    _move(attempt, state, finished_at=now, reason=reason[:500])
    _tell_workers([attempt.pk])
    tallies.note_ends([attempt.evaluation.target.name], state)
    log.info("attempt finished", **log_ids(attempt), state=state, reason=reason)


def _cancel_evaluations(evaluations: QuerySet[Evaluation], actor: User, reason: str) -> int:
    now, unfinished = timezone.now(), (EvaluationState.QUEUED, EvaluationState.RUNNING)
    ids = list(evaluations.select_for_update().filter(state__in=unfinished).values_list("pk", flat=True))
    attempts = Attempt.objects.active().filter(evaluation__in=ids)
    found = dict(attempts.order_by().values_list("pk", "target__name"))
    attempts.update(state=AttemptState.CANCELLED, finished_at=now, reason=reason[:500])
    Evaluation.objects.filter(pk__in=ids).update(state=EvaluationState.CANCELLED, finished_at=now)
    for evaluation in Evaluation.objects.filter(pk__in=ids):
        audit.write("cancel evaluation", evaluation, actor=actor, reason=reason)
    tallies.note_ends(found.values(), AttemptState.CANCELLED)
    _tell_workers(list(found))
    return len(ids)


def _leave_board(run: Run, state: RunState, action: str, actor: User, reason: str) -> bool:
    changed = Run.objects.filter(pk=run.pk, state=RunState.ACTIVE).update(state=state, state_reason=reason[:500])
    if changed:
        audit.write(action, run, actor=actor, reason=reason)
        _cancel_evaluations(run.evaluations.all(), actor, reason or f"the run was {state}")
        versions.bump()
    return bool(changed)


def _tell_workers(attempt_ids: list[UUID]) -> None:
    """On commit, mark the attempts as closed in the broker. Without the mark, workers waste time but nothing breaks."""

    def mark() -> None:
        try:
            broker.mark_closed(attempt_ids)
        except broker.BrokerUnavailable as error:
            log.warning("broker unavailable, workers are not told", attempts=len(attempt_ids), error=str(error))

    if attempt_ids:
        transaction.on_commit(mark)


def log_ids(attempt: Attempt) -> dict[str, str]:
    """Ids that every log line about an attempt carries."""
    return {
        "run_id": attempt.evaluation.run.public_id,
        "submission_id": attempt.submission.public_id,
        "attempt_id": str(attempt.pk),
    }
