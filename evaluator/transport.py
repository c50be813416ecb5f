"""What a Celery worker of ours takes out of the broker: the one argument of its one task, and nothing else.

Everybody who may write to a queue may write anything into it, past Celery: bytes that are no JSON end a worker, and a
message that is one may carry callbacks (further messages that the worker would send with its own rights), a time in the
far future, or another queue to which it is "returned". A GPU host runs hostile code and may write to ``results``. So
every item is read here, strictly, and only its argument goes on, in an envelope that is made afresh.

Imports neither Django nor torch: GPU hosts use it, too.
"""

from __future__ import annotations

import base64
import json
from typing import Any, ClassVar
from uuid import uuid4

import redis
import structlog
from kombu.transport import redis as kombu_redis

from evaluator import acknowledging
from evaluator.contract import MAX_MESSAGE_BYTES
from evaluator.messaging import EVALUATE_TASK, RECORD_TASK

log = structlog.get_logger(__name__)

# The text of a message is quoted up to three times (in the envelope, by JSON and in base64).
MAX_ITEM_BYTES = 4 * MAX_MESSAGE_BYTES


class Refused(ValueError):
    """The item of a queue is no message for this worker; the text says why."""


def argument_of(item: bytes, task: str) -> str:
    """The one argument, a text, of the Celery message ``item`` for ``task``. Raises ``Refused`` for anything else."""
    if len(item) > MAX_ITEM_BYTES:
        raise Refused(f"it has {len(item)} bytes, at most {MAX_ITEM_BYTES} are taken")
    try:
        message = json.loads(item)
        named = message["headers"]["task"]
        arguments = json.loads(base64.b64decode(message["body"], validate=True))[0]
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise Refused(f"it is no Celery message ({type(error).__name__})") from error
    if named != task:
        raise Refused(f"it is for the task {str(named)[:100]!r}, this worker has {task!r} alone")
    if not isinstance(arguments, list) or len(arguments) != 1 or not isinstance(arguments[0], str):
        raise Refused(f"{task!r} takes one text")
    return arguments[0]


def envelope(task: str, argument: str, queue: str) -> dict[str, Any]:
    """A Celery message (protocol 2) that asks for ``task`` with ``argument`` and for nothing besides."""
    task_id = str(uuid4())
    embedded = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return {
        "body": base64.b64encode(json.dumps([[argument], {}, embedded]).encode()).decode(),
        "content-type": "application/json",
        "content-encoding": "utf-8",
        "headers": {
            "lang": "py",
            "task": task,
            "id": task_id,
            "root_id": task_id,
            "parent_id": None,
            "group": None,
            "retries": 0,
            "eta": None,
            "expires": None,
            "timelimit": [None, None],
            "argsrepr": f"<{len(argument)} characters>",
            "kwargsrepr": "{}",
            "ignore_result": True,
        },
        "properties": {
            "correlation_id": task_id,
            "reply_to": "",
            "delivery_mode": 2,
            "delivery_info": {"exchange": "", "routing_key": queue},
            "priority": 0,
            "body_encoding": "base64",
            "delivery_tag": str(uuid4()),
        },
    }


class _Client(redis.Redis):
    """Redis client whose BRPOP gives clean messages; an item that is none is dropped, as if nothing had come."""

    task: ClassVar[str]

    def parse_response(self, connection: Any, command_name: Any, **options: Any) -> Any:
        reply = super().parse_response(connection, command_name, **options)  # type: ignore[no-untyped-call]
        if command_name != "BRPOP" or not reply:
            return reply
        queue, item = reply
        name = queue.decode(errors="replace")
        try:
            return queue, json.dumps(envelope(self.task, argument_of(item, self.task), name)).encode()
        except Refused as refusal:
            log.warning("item of a queue dropped", queue=name, reason=str(refusal), bytes=len(item))
            return None


class _EvaluateClient(_Client):
    task = EVALUATE_TASK


class _RecordClient(_Client):
    task = RECORD_TASK


class _HostQoS(kombu_redis.QoS):
    """Never gives back what other workers held for too long: the reaper does, from the database and much sooner.

    Kombu's way needs the right to run scripts, and a script that never ends stops the broker for everybody.
    """

    def restore_visible(self, start: int = 0, num: int = 10, interval: int = 10) -> None:
        return


class _EvaluateChannel(acknowledging.Channel):
    QoS = _HostQoS

    def _get_client(self) -> type[redis.Redis]:
        return _EvaluateClient


class _RecordChannel(acknowledging.Channel):
    def _get_client(self) -> type[redis.Redis]:
        return _RecordClient


class EvaluateTransport(kombu_redis.Transport):
    """Transport of evaluation workers."""

    Channel = _EvaluateChannel


class RecordTransport(kombu_redis.Transport):
    """Transport of the results worker."""

    Channel = _RecordChannel
