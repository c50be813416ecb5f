"""A lost connection is noticed also by a worker that learns of it while it acknowledges a message.

kombu logs such a failure ("Couldn't ack") and goes on. The message then counts as held for ever; a worker that may hold
one at a time asks for no other, so it never touches the dead connection again and waits until somebody restarts it.
Here the error goes on to Celery's consumer, which connects anew. The message itself is delivered again later, if the
broker still has it, and dropped as stale.
"""

from __future__ import annotations

from typing import Any

from kombu.transport import redis, virtual


class Message(virtual.Message):
    """A message whose failed acknowledgement is an error of the connection, as it is."""

    def ack_log_error(self, logger: Any, errors: Any, multiple: bool = False) -> None:
        self.ack(multiple=multiple)  # type: ignore[no-untyped-call]

    def reject_log_error(self, logger: Any, errors: Any, requeue: bool = False) -> None:
        self.reject(requeue=requeue)  # type: ignore[no-untyped-call]


class Channel(redis.Channel):
    Message = Message


class Transport(redis.Transport):
    """For ``broker_transport`` of every Celery app of the project; those with a transport of their own inherit it."""

    Channel = Channel
