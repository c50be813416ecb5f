"""What a worker says to the site, signed, and what it reads in the broker: claims and marks of closed attempts."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from uuid import UUID

import redis
import structlog
from celery import Celery
from kombu.exceptions import OperationalError

from evaluator.contract import ContractModel, Report, Signed
from evaluator.messaging import RECORD_TASK, RESULTS_QUEUE, claim_key, closed_key
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

    def claim(self, attempt_id: UUID) -> bool:
        """Take the attempt, if it is open and nobody has it. Raises ``redis.RedisError`` if the broker is gone."""
        if self.redis.exists(closed_key(attempt_id)):
            return False
        lifetime = int(self.settings.claim_seconds * 1_000)
        return bool(self.redis.set(claim_key(attempt_id), self.settings.name, nx=True, px=lifetime))

    def renew(self, attempt_id: UUID) -> bool:
        """Keep the claim. False if the attempt is closed. A broker that is gone says nothing, so work goes on."""
        lifetime = int(self.settings.claim_seconds * 1_000)
        try:
            self.redis.set(claim_key(attempt_id), self.settings.name, px=lifetime)
            return not self.redis.exists(closed_key(attempt_id))
        except redis.RedisError as error:
            log.warning("claim not renewed", error=str(error))
            return True

    def say(self, kind: Literal["claim", "progress", "hello"], body: ContractModel) -> None:
        """Send once. A lost one is followed by the next; the site leases an attempt at any sign of life."""
        try:
            self._send(kind, body)
        except OperationalError as error:
            log.warning("message not sent", kind=kind, error=str(error))

    def hand_over(self, report: Report, *, keep_alive: Callable[[], bool]) -> None:
        """Send the report as often as it takes, until the broker has it or ``keep_alive`` says that nobody wants it."""
        pause = FIRST_PAUSE
        while True:
            try:
                self._send("report", report)
                return
            except OperationalError as error:
                log.error("report not sent, trying again", seconds=pause, error=str(error))
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)
            if not keep_alive():
                return

    def _send(self, kind: Literal["claim", "progress", "report", "hello"], body: ContractModel) -> None:
        settings = self.settings
        signed = Signed.seal(worker=settings.name, kind=kind, body=body.model_dump_json(), key=settings.key_bytes)
        self.app.send_task(RECORD_TASK, args=[signed.model_dump_json()], queue=RESULTS_QUEUE, retry=False)
