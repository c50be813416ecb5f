"""What a worker may do in the broker: the rights of its user, as an ACL of Redis 7 or Valkey.

A GPU host runs hostile code, so whoever has its credentials may do this and nothing else:

    take jobs from the queue of its target and from its own, and keep those it holds under its target's keys;
    write to ``results``, but not read there;
    claim attempts of its target, see which attempts are closed, read its orders.

Nothing reaches the queues of other targets, what others hold, reports of others, or the server. There is no scripting
(a script that never ends stops the broker for everybody), no publish and subscribe (Celery's remote control), no
listing of keys, no other database, and no way to delete a key: only items that the worker holds.
Each list was found by letting a real worker work with less; tests/pipeline/test_broker_acl.py keeps it so.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

import redis
import structlog
from django.conf import settings

from evaluator.messaging import RESULTS_QUEUE, claim_key, closed_key, evaluation_queue, host_queue, orders_key
from leaderboard import broker
from leaderboard.models import Worker
from pkbsite import broker_users

log = structlog.get_logger(__name__)


class NotAllowed(Exception):
    """The site's own user may not set up users in this broker; the text says what the broker answered."""


def rules(worker: Worker) -> list[str]:
    """The rules of the worker's user, in the order in which they apply; they replace whatever stood before."""
    return [
        "reset",
        "on",
        f"#{hashlib.sha256(broker_users.password(worker.key).encode()).hexdigest()}",
        "+ping +client|setinfo +multi +exec +discard +unwatch",  # the connection; no keys
        *(f"({selector})" for selector in _selectors(worker.target.name, worker.name)),
    ]


def _selectors(target: str, worker: str) -> list[str]:
    queues = (evaluation_queue(target), host_queue(worker))
    held = [f"{name}.{evaluation_queue(target)}" for name in ("unacked", "unacked_index")]
    bindings = [f"_kombu.binding{kind}.{queue}" for kind in ("", "_permanent") for queue in queues]
    return [
        f"{_keys(queues)} +brpop +lpush +rpush +llen",  # the pushes give a message back
        f"{_keys(held)} +zadd +zrem +hset +hget +hdel +watch",
        f"{_keys(bindings)} +sadd",
        f"%W~{RESULTS_QUEUE} +lpush",
        f"%W~{claim_key(target, '*')} +set",
        f"%R~{closed_key('*')} +exists",
        f"%R~{orders_key(worker)} +get",
    ]


def _keys(names: Iterable[str]) -> str:
    return " ".join(f"~{name}" for name in names)


def acl_file(workers: Iterable[Worker]) -> str:
    """The users of these workers as lines of an ACL file (``aclfile`` of the server's configuration)."""
    return "".join(
        f"user {broker_users.user_name(worker.name)} {' '.join(rules(worker))}\n" for worker in workers
    ).replace(" reset on ", " on ")


def install(workers: Iterable[Worker]) -> int:
    """Set up the users of these workers in the broker, again and again to the same effect; returns their number.

    Raises ``NotAllowed`` if the broker does not let the site do so, ``broker.BrokerUnavailable`` if it is gone.
    """
    found = list(workers)
    try:
        with broker.client() as client, client.pipeline(transaction=False) as pipe:
            for worker in found:
                pipe.execute_command("ACL", "SETUSER", broker_users.user_name(worker.name), *_arguments(worker))
            pipe.execute()
    except broker.BrokerUnavailable as error:
        if isinstance(error.__cause__, redis.ResponseError):
            raise NotAllowed(str(error.__cause__)) from error
        raise
    return len(found)


def _arguments(worker: Worker) -> list[str]:
    """The rules as separate arguments; what stands in brackets is one."""
    return [part for rule in rules(worker) for part in ([rule] if rule.startswith("(") else rule.split())]


def keep_up() -> None:
    """Set up the users of all workers anew, as housekeeping does: a broker that was replaced knows nobody."""
    if not settings.BROKER_USERS:
        return
    try:
        install(Worker.objects.select_related("target"))
    except NotAllowed as error:
        log.error("the broker does not let the site set up its workers' users", answer=str(error))
    except broker.BrokerUnavailable as error:
        log.warning("broker unavailable, users not set up", error=str(error))
