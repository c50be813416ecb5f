"""The Celery app of a GPU host. Start it with

    celery --app evaluator.worker.app worker --queues eval.TARGET --concurrency 1 --pool solo

One task, one at a time: two evaluations on the same host would disturb each other's clocks.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from typing import Any

import redis
import structlog
from celery import Celery, signals
from celery.exceptions import Reject
from pydantic import ValidationError

from evaluator.contract import Claim, Decline, Job, Phase, Progress, Report, TracePart
from evaluator.logs import logging_config
from evaluator.messaging import EVALUATE_TASK, VISIBILITY_TIMEOUT, celery_settings, evaluation_queue
from evaluator.worker import capabilities, cleanliness
from evaluator.worker.duty import Duty, Obedience
from evaluator.worker.judging import Judge, JudgeFailed, NoLongerWanted, harness_failure
from evaluator.worker.messenger import Messenger
from evaluator.worker.settings import WorkerSettings

settings = WorkerSettings.read(os.environ)
logging_config(level=settings.log_level, style=settings.log_format)
log = structlog.get_logger(__name__)

app = Celery("evaluator", broker=settings.redis_url, set_as_current=False)
app.conf.update(celery_settings(evaluation_queue(settings.target), visibility_timeout=VISIBILITY_TIMEOUT))
app.conf.broker_transport = "evaluator.transport:EvaluateTransport"
app.conf.task_default_queue = evaluation_queue(settings.target)

HOST = socket.gethostname()
LEAST_GAP = 0.5  # seconds between two progress messages; the site shows no more
messenger = Messenger(app, settings)
duty = Duty(messenger, capabilities.hello(settings.target, HOST), cleanliness.of_target(settings.target))
Obedience.duty = duty
app.steps["consumer"].add(Obedience)


@app.task(name=EVALUATE_TASK)
def evaluate(message: str) -> None:
    """Evaluate one attempt: claim it, let the judge work, hand over the report; only then acknowledge.

    Returns without work if the attempt is closed, another worker has it, or this host cannot serve it.
    """
    job = _job(message)
    if job is None:
        return
    with structlog.contextvars.bound_contextvars(
        attempt_id=str(job.attempt_id), run_id=job.run_id, submission_id=job.submission_id, problem=job.problem_id
    ):
        if not job.canary and (objection := duty.objection(job)):
            log.warning("attempt declined", reason=objection)
            messenger.say("decline", Decline(attempt_id=job.attempt_id, reason=objection))
        elif not _claimed(job):
            log.info("attempt is closed or taken, dropped")
        elif job.canary and duty.unclean:
            _hand_over_canary(harness_failure(job, f"Not judged. {duty.unclean}", host=HOST))
        else:
            try:
                _canary(job) if job.canary else _evaluate(job)
            finally:
                duty.end_job()


def _canary(job: Job) -> None:
    report, _ = _judged(job, Pulse(job))
    _hand_over_canary(report)


def _hand_over_canary(report: Report) -> None:
    messenger.hand_over("canary", report, keep_alive=lambda: True)
    log.info("canary handed over", code=report.code, seconds=report.seconds)


def _evaluate(job: Job) -> None:
    log.info("attempt claimed", number=job.attempt_number)
    messenger.say("claim", Claim(attempt_id=job.attempt_id, attempt_number=job.attempt_number, host=HOST))
    pulse = Pulse(job)
    try:
        report, traces = _judged(job, pulse)
    except NoLongerWanted:
        log.info("attempt was closed meanwhile, stopped")
        return
    for part in traces:  # first: once the report is there the attempt is over, and nothing brings a lost trace back
        messenger.hand_over("trace", part, keep_alive=pulse.beat)
    messenger.hand_over("report", report, keep_alive=pulse.beat)
    log.info("report handed over", code=report.code, seconds=report.seconds)


def _claimed(job: Job) -> bool:
    """Whether the attempt is ours now. If we may not take work, or nobody can say, the message goes back."""
    refusal = duty.may_begin()
    if refusal and not job.canary:
        log.info("takes no work, message goes back", reason=refusal)
        raise Reject(refusal, requeue=True)
    try:
        return messenger.claim(job)
    except redis.RedisError as error:
        log.warning("broker unavailable, message goes back", error=str(error))
        raise Reject(str(error), requeue=True) from error


def _judged(job: Job, pulse: Pulse) -> tuple[Report, list[TracePart]]:
    judge = Judge(settings.judge_command, job, progress=pulse.show, alive=pulse.beat)
    try:
        return judge.run(), judge.traces
    except JudgeFailed as error:
        log.error("judge failed", reason=str(error))
        return harness_failure(job, f"The judge failed: {error}", host=HOST), []


def _job(message: str) -> Job | None:
    """The job, or None if the message is none; a job that this worker cannot read it gives back."""
    try:
        job = Job.model_validate_json(message)
    except ValidationError as error:
        log.error("job refused", reason=str(error))
        _decline_unread(message, f"Host {HOST} does not understand the job ({error.error_count()} errors): is it old?")
        return None
    if job.target != settings.target:
        log.error("job refused", reason=f"it is for {job.target}, this worker serves {settings.target}")
        return None
    return job


def _decline_unread(message: str, reason: str) -> None:
    try:
        fields: dict[str, Any] = json.loads(message)
        decline = Decline(attempt_id=fields["attempt_id"], reason=reason)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        log.error("job unreadable, nothing reported", reason=str(error))
        return
    messenger.say("decline", decline)


class Pulse:
    """Signs of life of one attempt: numbers progress messages, repeats the last one when the judge is silent."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._last = Progress(attempt_id=job.attempt_id, sequence=0, phase=Phase.STATIC)
        self._fresh = False
        self._wanted = True
        self._said = time.monotonic()

    def show(self, progress: Progress) -> None:
        """Take over what the judge says; sent now, or with the next beat if the last message was just sent."""
        self._last = progress.model_copy(update={"sequence": self._last.sequence})
        self._fresh = True
        self.beat()

    def beat(self) -> bool:
        """Speak if there is something new or it is time to. False when nobody wants the attempt any more."""
        gap = time.monotonic() - self._said
        if gap >= settings.heartbeat_seconds or (self._fresh and gap >= LEAST_GAP):
            self._last = self._last.model_copy(update={"sequence": self._last.sequence + 1})
            self._wanted = messenger.renew(self._job)
            if not self._job.canary:
                messenger.say("progress", self._last)
            self._fresh, self._said = False, time.monotonic()
        return self._wanted


@signals.worker_ready.connect
def _introduce(**_: object) -> None:
    """Say hello now and then, so that the site knows which workers exist and with which versions."""

    def speak() -> None:
        while True:
            messenger.say("hello", duty.hello)
            time.sleep(settings.hello_seconds)

    threading.Thread(target=speak, daemon=True, name="hello").start()
