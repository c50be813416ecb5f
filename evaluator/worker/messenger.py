"""What a worker says to the site, signed, and what it reads in the broker: claims and marks of closed attempts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import redis
import structlog
from celery import Celery
from kombu.exceptions import OperationalError
from pydantic import ValidationError

from evaluator.contract import ContractModel, Job, Kind, Orders, Signed
from evaluator.messaging import RECORD_TASK, RESULTS_QUEUE, claim_key, closed_key, orders_key
from evaluator.worker.settings import WorkerSettings

log = structlog.get_logger(__name__)

BROKER_TIMEOUT = 5.0  # seconds
FIRST_PAUSE, LONGEST_PAUSE = 0.5, 30.0  # seconds between two tries to hand over a report


@dataclass
class Messenger:
    """Speaks for one worker."""

    app: Celery
    settings: WorkerSettings

    def __post_init__(self) -> None:
        self.redis = redis.Redis.from_url(
            self.settings.redis_url, socket_connect_timeout=BROKER_TIMEOUT, socket_timeout=BROKER_TIMEOUT
        )

    def orders(self) -> Orders | None:
        """What the site wants of this worker; None if it has left nothing yet. Raises ``redis.RedisError``."""
        text = self.redis.get(orders_key(self.settings.name))
        if text is None:
            return None
        try:
            return Orders.model_validate_json(text)
        except ValidationError:
            return Orders(takes_work=False, reason="The site speaks another version of the contract than this worker.")

    def claim(self, job: Job) -> bool:
        """Take the attempt, if it is open and nobody has it. Raises ``redis.RedisError`` if the broker is gone."""
        if self.redis.exists(closed_key(job.attempt_id)):
            return False
        key, lifetime = claim_key(self.settings.target, job.attempt_id), int(self.settings.claim_seconds * 1_000)
        return bool(self.redis.set(key, self.settings.name, nx=True, px=lifetime))

    def renew(self, job: Job) -> bool:
        """Keep the claim. False if the attempt is closed. A broker that is gone says nothing, so work goes on."""
        key, lifetime = claim_key(self.settings.target, job.attempt_id), int(self.settings.claim_seconds * 1_000)
        try:
            self.redis.set(key, self.settings.name, px=lifetime)
            return not self.redis.exists(closed_key(job.attempt_id))
        except redis.RedisError as error:
            log.warning("claim not renewed", error=str(error))
            return True

    def say(self, kind: Literal["claim", "progress", "hello", "decline"], body: ContractModel) -> None:
        """Send once. A lost one is followed by the next; the site leases an attempt at any sign of life."""
        try:
            self._send(kind, body)
        except OperationalError as error:
            log.warning("message not sent", kind=kind, error=str(error))

    def hand_over(
        self, kind: Literal["report", "canary", "trace"], report: ContractModel, *, keep_alive: Callable[[], bool]
    ) -> None:
        """Send a report or trace as often as it takes, until the broker has it or ``keep_alive`` is False."""
        pause = FIRST_PAUSE
        while True:
            try:
                self._send(kind, report)
                return
            except OperationalError as error:
                log.error("message not sent, trying again", kind=kind, seconds=pause, error=str(error))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if not keep_alive():
                return

    def _send(self, kind: Kind, body: ContractModel) -> None:
        settings = self.settings
        signed = Signed.seal(worker=settings.name, kind=kind, body=body.model_dump_json(), key=settings.key_bytes)
        # declare: nothing. Declaring the queue would need more rights in the broker than to write to it.
        self.app.send_task(RECORD_TASK, args=[signed.model_dump_json()], queue=RESULTS_QUEUE, retry=False, declare=[])
