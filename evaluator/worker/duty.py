"""Whether this worker takes work: it reads its orders in the broker and stops or starts to read its target's queue.

It takes none either while the GPUs of its host are unclean, whatever its orders, and tells the site why. The queue of
the host itself, in which canaries come, is read all the time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import redis
import structlog
from celery import bootsteps

from evaluator.contract import Hello, Job, Orders
from evaluator.messaging import evaluation_queue, host_queue
from evaluator.worker import capabilities
from evaluator.worker.cleanliness import Cleanliness
from evaluator.worker.messenger import Messenger

log = structlog.get_logger(__name__)

NO_ORDERS = "It waits for the site's first answer."


class Duty:
    """What the worker knows of its orders and of its GPUs.

    ``refusal``: why it takes no work now, as a sentence; "" if it does. ``hello``: what it tells the site of itself.
    ``stop_reading`` is called when it is to take no more work, in the middle of a job as well.
    """

    def __init__(self, messenger: Messenger, hello: Hello, cleanliness: Cleanliness | None = None) -> None:
        self.messenger = messenger
        self.hello = hello
        self.refusal = NO_ORDERS
        self.stop_reading: Callable[[], None] = _reads_nothing
        self._cleanliness = cleanliness
        self._orders: Orders | None = None

    def look(self) -> str:
        """Read the orders again; returns the refusal. Without a broker, or orders in it, the last ones stand.

        GPUs that were unclean are looked at again when it is time to.
        """
        if self._cleanliness is not None:
            self._note(self._cleanliness.look_again())
        try:
            self._orders = self.messenger.orders() or self._orders
        except redis.RedisError as error:
            log.warning("orders not read", error=str(error))
        return self._decide()

    def may_begin(self) -> str:
        """The refusal right before a job: the GPUs are looked at, and the orders are read."""
        if self._cleanliness is not None and not self.unclean:
            self._note(self._cleanliness.look_before_job())
        return self.look()

    def end_job(self) -> None:
        """After the judge has ended, however it did: see what it has left on the GPUs."""
        if self._cleanliness is not None:
            self._note(self._cleanliness.look_after_job())
            self._decide()

    @property
    def unclean(self) -> str:
        """Why nothing at all may be judged on this host now, not even a canary, as a sentence; "" if it may."""
        return self._cleanliness.finding if self._cleanliness is not None else ""

    def _note(self, finding: str) -> None:
        """Tell the site at once if it is other than what it was told before."""
        if finding == self.hello.refuses:
            return
        if finding:
            self.hello = self.hello.model_copy(update={"refuses": finding})
        else:  # anew: a driver that was away may be another one now
            self.hello = capabilities.hello(self.hello.target, self.hello.host)
        self.messenger.say("hello", self.hello)

    def _decide(self) -> str:
        refusal = self._orders.refusal(self.hello) if self._orders is not None else NO_ORDERS
        if refusal != self.refusal:
            log.info("orders changed", takes_work=not refusal, reason=refusal)
        self.refusal = refusal
        if refusal:
            self.stop_reading()
        return refusal

    def objection(self, job: Job) -> str:
        """Why this host cannot serve the job whatever its orders, as a sentence; "" if it can."""
        has = capabilities.problem_digests().get(job.problem_id, "")
        if not job.problem_digest or job.problem_digest == has:
            return ""
        return (
            f"Host {self.hello.host} has version {has[:12] or 'none'} of problem {job.problem_id}, the file is to be "
            f"judged by version {job.problem_digest[:12]}."
        )


def _reads_nothing() -> None:
    """The worker does not read queues yet, or no more."""


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
        self.duty.stop_reading = lambda: self._stop_reading(consumer)
        self._obey(consumer)
        self._timer = consumer.timer.call_repeatedly(settings.orders_seconds, self._obey, (consumer,))

    def stop(self, consumer: Any) -> None:
        self.duty.stop_reading = _reads_nothing
        if self._timer is not None:
            self._timer.cancel()

    def _obey(self, consumer: Any) -> None:
        if not self.duty.look() and not consumer.task_consumer.consuming_from(self._queue):
            consumer.add_task_queue(self._queue)

    def _stop_reading(self, consumer: Any) -> None:
        if consumer.task_consumer.consuming_from(self._queue):
            consumer.cancel_task_queue(self._queue)

    @property
    def _queue(self) -> str:
        return evaluation_queue(self.duty.messenger.settings.target)
