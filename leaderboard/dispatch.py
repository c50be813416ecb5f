"""Sends attempts to the workers of their target. A message is a wake-up: twice or never, no verdict changes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import structlog
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from evaluator.contract import Job
from evaluator.messaging import EVALUATE_TASK
from leaderboard import turns
from leaderboard.models import Attempt, AttemptState
from pkbsite.celery import app
from problems.models import ProblemVersion

log = structlog.get_logger(__name__)


def refill_on_commit(target_id: int) -> None:
    """Once the rows are there for everybody to see, send as many of the target's wake-ups as there is room for."""
    transaction.on_commit(lambda: refill(target_id))


def refill(target_id: int, *, at: datetime | None = None) -> int:
    """Send the wake-ups whose turn it is, if the target's workers need more; returns how many went out."""
    ids = turns.choose(target_id, at=at)
    return send(ids, at=at) if ids else 0


def send(attempt_ids: Sequence[UUID], *, at: datetime | None = None) -> int:
    """Send a wake-up for each of the attempts that is still queued, in this order; returns how many went out.

    If the broker is gone, the rest stays queued and unsent, and the reaper sends it when the broker is back.
    """
    rows = Attempt.objects.select_related(
        "evaluation__target", "submission__run", "submission__problem", "submission__source"
    ).filter(state=AttemptState.QUEUED)
    found = rows.in_bulk(list(attempt_ids))
    attempts = [found[attempt_id] for attempt_id in attempt_ids if attempt_id in found]
    digests = _digests(attempts)
    sent: list[UUID] = []
    for attempt in attempts:
        digest = digests.get((attempt.evaluation.suite_id, attempt.submission.problem_id), "")
        if not _publish(attempt, digest):
            break
        sent.append(attempt.pk)
    queued = Attempt.objects.filter(state=AttemptState.QUEUED)
    queued.filter(pk__in=sent).update(sent_at=at or timezone.now())
    queued.filter(pk__in=[attempt.pk for attempt in attempts[len(sent) :]]).update(sent_at=None)
    return len(sent)


def _publish(attempt: Attempt, digest: str) -> bool:
    job = job_for(attempt, digest)
    ids = {"run_id": job.run_id, "submission_id": job.submission_id, "attempt_id": str(job.attempt_id)}
    try:
        app.send_task(
            EVALUATE_TASK,
            args=[job.model_dump_json()],
            queue=attempt.evaluation.target.queue,
            task_id=str(attempt.pk),
            retry=False,
        )
    except OperationalError as error:
        log.warning("broker unavailable, attempt stays queued", **ids, error=str(error))
        return False
    log.info("attempt sent", **ids, number=job.attempt_number, queue=attempt.evaluation.target.queue)
    return True


def job_for(attempt: Attempt, problem_digest: str) -> Job:
    """The job as the worker gets it. ``problem_digest``: of the problem version that the evaluation's suite holds."""
    submission, target = attempt.submission, attempt.evaluation.target
    return Job.model_validate(
        {
            "attempt_id": attempt.pk,
            "attempt_number": attempt.number,
            "problem_id": submission.problem.number,
            "problem_digest": problem_digest,
            "target": target.name,
            "world_size": target.world_size,
            "precision": submission.run.precision,
            "backend": submission.run.backend,
            "file_name": submission.file_name,
            "source": submission.source.text,
            "run_id": submission.run.public_id,
            "submission_id": submission.public_id,
            "profile": submission.run.record_profile,
        }
    )


def digest_for(attempt: Attempt) -> str:
    """Digest of the problem version that the attempt asks for; empty if the suite does not hold the problem."""
    return _digests([attempt]).get((attempt.evaluation.suite_id, attempt.submission.problem_id), "")


def _digests(attempts: list[Attempt]) -> dict[tuple[int, int], str]:
    """(suite, problem) -> digest of the version of that problem in that suite."""
    suites = {attempt.evaluation.suite_id for attempt in attempts}
    problems = {attempt.submission.problem_id for attempt in attempts}
    rows = ProblemVersion.objects.filter(suites__in=suites, problem__in=problems).values_list(
        "suites", "problem_id", "digest"
    )
    return {(suite, problem): digest for suite, problem, digest in rows}
