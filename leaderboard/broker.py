"""What the web side asks the broker directly. The broker may be gone at any time: callers decide what that means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from uuid import UUID

import redis
from django.conf import settings

from evaluator.contract import Orders
from evaluator.messaging import CLOSED_MARK_SECONDS, closed_key, orders_key

TIMEOUT = 5.0  # seconds; a web request may wait that long for the broker and no longer
_REAPER_KEY = "pkb:reaper"


class BrokerUnavailable(Exception):
    """The broker did not answer. Rows wait in the database; the reaper sends their wake-ups later."""


@contextmanager
def client() -> Iterator[redis.Redis]:
    """A connection. Errors of the broker leave the block as ``BrokerUnavailable``, whose cause they are."""
    connection = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=TIMEOUT, socket_timeout=TIMEOUT)
    try:
        yield connection
    except redis.RedisError as error:
        raise BrokerUnavailable(str(error)) from error
    finally:
        connection.close()


def ping() -> None:
    """Raises ``BrokerUnavailable`` if the broker does not answer."""
    with client() as connection:
        connection.ping()


def queue_lengths(queues: Iterable[str]) -> dict[str, int]:
    """Messages that wait in each queue; those already handed to a worker are not among them."""
    names = list(queues)
    with client() as connection, connection.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.llen(name)
        return dict(zip(names, pipe.execute(), strict=True))


def mark_closed(attempt_ids: Iterable[UUID]) -> None:
    """Tell workers that no report of these attempts is wanted any more."""
    ids = list(attempt_ids)
    if not ids:
        return
    with client() as connection, connection.pipeline(transaction=False) as pipe:
        for attempt_id in ids:
            pipe.set(closed_key(attempt_id), "1", ex=CLOSED_MARK_SECONDS)
        pipe.execute()


def give_orders(orders: Mapping[str, Orders]) -> None:
    """Leave for each worker, by its name, what the site wants of it."""
    if not orders:
        return
    with client() as connection, connection.pipeline(transaction=False) as pipe:
        for worker, wanted in orders.items():
            pipe.set(orders_key(worker), wanted.model_dump_json())
        pipe.execute()


def reaper_came_by(remember_seconds: float) -> bool:
    """Whether the reaper was here within the time it asked to be remembered last; remembers this visit."""
    with client() as connection:
        return connection.set(_REAPER_KEY, "1", px=max(1, int(remember_seconds * 1_000)), get=True) is not None
