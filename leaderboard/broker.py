"""What the web side asks the broker directly. The broker may be gone at any time: callers decide what that means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from uuid import UUID

import redis
from django.conf import settings

from evaluator.messaging import CLOSED_MARK_SECONDS, closed_key

TIMEOUT = 5.0  # seconds; a web request may wait that long for the broker and no longer
_REAPER_KEY = "pkb:reaper"


class BrokerUnavailable(Exception):
    """The broker did not answer. Rows wait in the database; the reaper sends their wake-ups later."""


@contextmanager
def _client() -> Iterator[redis.Redis]:
    client = redis.Redis.from_url(settings.REDIS_URL, socket_connect_timeout=TIMEOUT, socket_timeout=TIMEOUT)
    try:
        yield client
    except redis.RedisError as error:
        raise BrokerUnavailable(str(error)) from error
    finally:
        client.close()


def ping() -> None:
    """Raises ``BrokerUnavailable`` if the broker does not answer."""
    with _client() as client:
        client.ping()


def queue_lengths(queues: Iterable[str]) -> dict[str, int]:
    """Messages that wait in each queue; those already handed to a worker are not among them."""
    names = list(queues)
    with _client() as client, client.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.llen(name)
        return dict(zip(names, pipe.execute(), strict=True))


def mark_closed(attempt_ids: Iterable[UUID]) -> None:
    """Tell workers that no report of these attempts is wanted any more."""
    ids = list(attempt_ids)
    if not ids:
        return
    with _client() as client, client.pipeline(transaction=False) as pipe:
        for attempt_id in ids:
            pipe.set(closed_key(attempt_id), "1", ex=CLOSED_MARK_SECONDS)
        pipe.execute()


def reaper_came_by(remember_seconds: float) -> bool:
    """Whether the reaper was here within the time it asked to be remembered last; remembers this visit."""
    with _client() as client:
        return client.set(_REAPER_KEY, "1", px=max(1, int(remember_seconds * 1_000)), get=True) is not None
