"""Reads what workers report: size, signature, schema, then the one verb of ``leaderboard.lifecycle`` that fits.

Everything that a GPU host says comes through here, and a GPU host has run hostile code.
"""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

import structlog
from pydantic import ValidationError

from evaluator.contract import (
    MAX_MESSAGE_BYTES,
    Claim,
    Code,
    ContractModel,
    Decline,
    Hello,
    Progress,
    Report,
    Signed,
    TracePart,
)
from leaderboard import audit, canaries, dispatch, lifecycle, tallies, traces, workers
from leaderboard.models import Attempt, Worker

log = structlog.get_logger(__name__)
M = TypeVar("M", bound=ContractModel)

MODELS: dict[str, type[ContractModel]] = {
    "claim": Claim,
    "progress": Progress,
    "report": Report,
    "hello": Hello,
    "decline": Decline,
    "canary": Report,
    "trace": TracePart,
}
ENVELOPE_BYTES = 2 * MAX_MESSAGE_BYTES  # the body is quoted once more inside the envelope
# PostgreSQL stores neither NUL nor half of a surrogate pair, and both may stand in what a candidate printed.
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class Refused(Exception):
    """The message is not taken. The text says why, for the log and the audit trail; the sender gets no answer.

    ``why``: the same in one word, for the metrics.
    """

    def __init__(self, text: str, why: str = "not_asked_for") -> None:
        super().__init__(text)
        self.why = why


def record_message(message: str) -> None:
    """Take one message of a worker. Raises ``Refused`` if it is not what its kind must be, or comes too late.

    Database errors and ``traces.NoRoom`` pass through: the caller delivers the message again.
    """
    signed = _open(message)
    worker = _worker(signed.worker)
    if worker is None:
        raise Refused(f"there is no worker {signed.worker!r}", "unknown_worker")
    if not signed.verify(bytes.fromhex(worker.key)):
        raise Refused(f"the signature is not that of worker {worker.name}", "signature")
    try:
        body = _validated(MODELS[signed.kind], signed.body, f"{signed.kind} of worker {worker.name}")
    except Refused as refusal:
        if signed.kind == "hello":
            workers.note_foreign(worker, f"This release does not understand the worker; is it another one? {refusal}")
        raise
    workers.seen(worker)
    subject = {"attempt_id": str(body.attempt_id)} if hasattr(body, "attempt_id") else {}
    with structlog.contextvars.bound_contextvars(worker=worker.name, kind=signed.kind, **subject):
        try:
            _deliver(signed.kind, body, worker)
        except lifecycle.Stale as error:
            raise Refused(f"{signed.kind} of worker {worker.name} is stale: {error}", "stale") from error


def note_refusal(refusal: Refused, message: str) -> None:
    """Log and audit a refused message, with the worker it names if there is one."""
    worker = _named_worker(message)
    log.warning("message refused", reason=str(refusal), worker=worker.name if worker else None)
    tallies.note_refusal(refusal.why)
    if worker is not None:
        audit.write("refuse message", worker, reason=_UNSTORABLE.sub("\ufffd", str(refusal)), bytes=len(message))


def _open(message: str) -> Signed:
    size = len(message.encode("utf-8", "surrogatepass"))
    if size > ENVELOPE_BYTES:
        raise Refused(f"the message has {size} bytes, at most {ENVELOPE_BYTES} are taken", "oversized")
    signed = _validated(Signed, message, "message")
    size = len(signed.body.encode("utf-8", "surrogatepass"))
    if size > MAX_MESSAGE_BYTES:
        raise Refused(f"the body has {size} bytes, at most {MAX_MESSAGE_BYTES} are taken", "oversized")
    return signed


def _validated(model: type[M], text: str, what: str) -> M:
    """The message by its schema. What no database can store is replaced in its texts."""
    try:
        parsed = model.model_validate_json(text)
        return parsed if model is Signed else model.model_validate(_storable(parsed.model_dump(mode="json")))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise Refused(
            f"the {what} is malformed in {error.error_count()} places, first {place}: {first['msg']}", "malformed"
        ) from error


def _storable(value: Any) -> Any:
    """``value`` (plain data) with unstorable characters replaced in every string and key."""
    match value:
        case str():
            return _UNSTORABLE.sub("\ufffd", value)
        case list():
            return [_storable(item) for item in value]
        case dict():
            return {_storable(key): _storable(item) for key, item in value.items()}
        case _:
            return value


def _deliver(kind: str, body: ContractModel, worker: Worker) -> None:
    match body:
        case Claim():
            lifecycle.lease_attempt(body, worker)
        case Progress():
            lifecycle.record_progress(body, worker)
        case Decline():
            lifecycle.decline_attempt(body, worker)
        case Report() if kind == "canary":
            canaries.record(body, worker)
        case Report():
            _check_subject(body)
            lifecycle.record_report(body, worker)
            if body.code is Code.HARNESS_FAILURE:
                canaries.suspect(worker, f"attempt {body.attempt_id} ended as a failure of ours")
        case TracePart():
            try:
                traces.store(body, worker)
            except traces.TraceRefused as refusal:
                raise Refused(str(refusal)) from refusal
        case Hello():
            if body.target != worker.target.name:
                raise Refused(f"worker {worker.name} is registered for {worker.target}, but serves {body.target}")
            workers.note_hello(worker, body)


def _check_subject(report: Report) -> None:
    """A report must be about what was asked: problem and version, target, ranks, precision."""
    attempt = (
        Attempt.objects.select_related("evaluation__target", "submission__problem", "submission__run")
        .filter(pk=report.attempt_id)
        .first()
    )
    if attempt is None:
        raise Refused(f"there is no attempt {report.attempt_id}")
    target = attempt.evaluation.target
    digest = dispatch.digest_for(attempt)
    pairs: list[tuple[str, Any, Any]] = [
        ("problem", report.problem_id, attempt.submission.problem.number),
        ("target", report.target, target.name),
        ("world size", report.world_size, target.world_size),
        ("precision", report.precision, attempt.submission.run.precision),
    ]
    if report.code is not Code.HARNESS_FAILURE and digest:  # a host with another version says so by such a failure
        pairs.append(("problem version", report.problem_digest, digest))
    for what, got, asked in pairs:
        if got != asked:
            raise Refused(f"report of attempt {attempt.pk} is about {what} {got}, asked was {asked}")
    if target.is_ranked and report.isolation is not None and report.isolation.mode == "none":
        raise Refused(f"report of attempt {attempt.pk} comes from an unsandboxed run; {target} takes no such report")


def _named_worker(message: str) -> Worker | None:
    try:
        name = json.loads(message[:ENVELOPE_BYTES])["worker"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return _worker(name) if isinstance(name, str) else None


def _worker(name: str) -> Worker | None:
    if _UNSTORABLE.search(name):
        return None
    return Worker.objects.select_related("target").filter(name=name).first()
