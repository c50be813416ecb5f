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
from importlib import metadata
from typing import Any

import redis
import structlog
from celery import Celery, signals
from celery.exceptions import Reject
from pydantic import ValidationError

from evaluator.contract import Claim, Hello, Job, Phase, Progress, Report
from evaluator.logs import logging_config
from evaluator.messaging import EVALUATE_TASK, VISIBILITY_TIMEOUT, celery_settings, evaluation_queue
from evaluator.worker.judging import Judge, JudgeFailed, NoLongerWanted, harness_failure
from evaluator.worker.messenger import Messenger
from evaluator.worker.settings import WorkerSettings

settings = WorkerSettings.read(os.environ)
logging_config(level=settings.log_level, style=settings.log_format)
log = structlog.get_logger(__name__)

app = Celery("evaluator", broker=settings.redis_url, set_as_current=False)
app.conf.update(celery_settings(evaluation_queue(settings.target), visibility_timeout=VISIBILITY_TIMEOUT))
app.conf.task_default_queue = evaluation_queue(settings.target)

HOST = socket.gethostname()
LEAST_GAP = 0.5  # seconds between two progress messages; the site shows no more
messenger = Messenger(app, settings)


@app.task(name=EVALUATE_TASK)
def evaluate(message: str) -> None:
    """Evaluate one attempt: claim it, let the judge work, hand over the report; only then acknowledge.

    Returns without work if the attempt is closed or another worker has it.
    """
    job = _job(message)
    if job is None:
        return
    with structlog.contextvars.bound_contextvars(attempt_id=str(job.attempt_id), problem=job.problem_id):
        if not _claimed(job):
            log.info("attempt is closed or taken, dropped")
            return
        messenger.say("claim", Claim(attempt_id=job.attempt_id, attempt_number=job.attempt_number, host=HOST))
        pulse = Pulse(job)
        try:
            report = _judged(job, pulse)
        except NoLongerWanted:
            log.info("attempt was closed meanwhile, stopped")
            return
        messenger.hand_over(report, keep_alive=pulse.beat)
        log.info("report handed over", code=report.code, seconds=report.seconds)


def _claimed(job: Job) -> bool:
    """Whether the attempt is ours now. Without the broker nobody can say, so the message goes back to its queue."""
    try:
        return messenger.claim(job.attempt_id)
    except redis.RedisError as error:
        log.warning("broker unavailable, message goes back", error=str(error))
        raise Reject(str(error), requeue=True) from error


def _judged(job: Job, pulse: Pulse) -> Report:
    try:
        return Judge(settings.judge_command, job, progress=pulse.show, alive=pulse.beat).run()
    except JudgeFailed as error:
        log.error("judge failed", reason=str(error))
        return harness_failure(job, f"The judge failed: {error}", host=HOST)


def _job(message: object) -> Job | None:
    """The job, or None if the message is none; of a job that this worker cannot read it reports the failure itself."""
    try:
        job = Job.model_validate_json(message if isinstance(message, str) else "")
    except ValidationError as error:
        log.error("job refused", reason=str(error))
        _refuse(message, f"This worker does not understand the job ({error.error_count()} errors); is it up to date?")
        return None
    if job.target != settings.target:
        log.error("job refused", reason=f"it is for {job.target}, this worker serves {settings.target}")
        return None
    return job


def _refuse(message: object, reason: str) -> None:
    try:
        fields: dict[str, Any] = json.loads(message if isinstance(message, str) else "")
        known = {name: fields[name] for name in Job.model_fields if name in fields}
        job = Job.model_validate({**known, "contract_version": 1, "source": "", "file_name": "unreadable"})
    except (ValueError, TypeError, RecursionError) as error:
        log.error("job unreadable, nothing reported", reason=str(error))
        return
    messenger.hand_over(harness_failure(job, reason, host=HOST), keep_alive=lambda: True)


class Pulse:
    """Signs of life of one attempt: numbers progress messages, repeats the last one when the judge is silent."""

    def __init__(self, job: Job) -> None:
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
            self._wanted = messenger.renew(self._last.attempt_id)
            messenger.say("progress", self._last)
            self._fresh, self._said = False, time.monotonic()
        return self._wanted


@signals.worker_ready.connect
def _introduce(**_: object) -> None:
    """Say hello now and then, so that the site knows which workers exist and with which versions."""
    hello = Hello(target=settings.target, host=HOST, versions=versions())

    def speak() -> None:
        while True:
            messenger.say("hello", hello)
            time.sleep(settings.hello_seconds)

    threading.Thread(target=speak, daemon=True, name="hello").start()


def versions() -> dict[str, str]:
    """Versions of what decides a verdict, without importing torch."""
    found = {}
    for name in ("pkbsite", "torch", "triton", "celery"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
