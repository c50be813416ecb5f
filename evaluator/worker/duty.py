"""Whether this worker takes work: it reads its orders in the broker and stops or starts to read its target's queue.

The queue of the host itself, in which canaries come, is read all the time.
"""

from __future__ import annotations

from typing import Any, ClassVar

import redis
import structlog
from celery import bootsteps

from evaluator.contract import Hello, Job
from evaluator.messaging import evaluation_queue, host_queue
from evaluator.worker import capabilities
from evaluator.worker.messenger import Messenger

log = structlog.get_logger(__name__)

NO_ORDERS = "It waits for the site's first answer."


class Duty:
    """What the worker knows of its orders. ``refusal``: why it takes no work now, as a sentence; "" if it does."""

    def __init__(self, messenger: Messenger, hello: Hello) -> None:
        self.messenger = messenger
        self.hello = hello
        self.refusal = NO_ORDERS

    def look(self) -> str:
        """Read the orders again; returns the refusal. Without a broker, or orders in it, the last ones stand."""
        try:
            orders = self.messenger.orders()
        except redis.RedisError as error:
            log.warning("orders not read", error=str(error))
            return self.refusal
        if orders is not None:
            refusal = orders.refusal(self.hello)
            if refusal != self.refusal:
                log.info("orders changed", takes_work=not refusal, reason=refusal)
            self.refusal = refusal
        return self.refusal

    def objection(self, job: Job) -> str:
        """Why this host cannot serve the job whatever its orders, as a sentence; "" if it can."""
        has = capabilities.problem_digests().get(job.problem_id, "")
        if not job.problem_digest or job.problem_digest == has:
            return ""
        return (
            f"Host {self.hello.host} has version {has[:12] or 'none'} of problem {job.problem_id}, the file is to be "
            f"judged by version {job.problem_digest[:12]}."
        )


class Obedience(bootsteps.StartStopStep):  # type: ignore[misc]  # celery has no types
    """Part of Celery's consumer: looks at the orders between jobs, in the consumer's own thread."""

    requires = ("celery.worker.consumer.tasks:Tasks",)
    duty: ClassVar[Duty]

    def __init__(self, consumer: Any, **options: Any) -> None:
        super().__init__(consumer, **options)
        self._timer: Any = None

    def start(self, consumer: Any) -> None:
        settings = self.duty.messenger.settings
        consumer.add_task_queue(host_queue(settings.name))
        self._obey(consumer)
        self._timer = consumer.timer.call_repeatedly(settings.orders_seconds, self._obey, (consumer,))

    def stop(self, consumer: Any) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _obey(self, consumer: Any) -> None:
        queue = evaluation_queue(self.duty.messenger.settings.target)
        refusal = self.duty.look()
        reading = consumer.task_consumer.consuming_from(queue)
        if refusal and reading:
            consumer.cancel_task_queue(queue)
        elif not refusal and not reading:
            consumer.add_task_queue(queue)
