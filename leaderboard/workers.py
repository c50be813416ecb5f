"""Who may evaluate, and what each worker is told. A GPU host has no database: its orders lie in the broker.

A drained worker finishes what it holds. One that is quarantined, by a maintainer or because its canary fails, may do so
too, but nothing that it begins counts: ``leaderboard.lifecycle`` refuses its claims.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog
from django.db import transaction
from django.utils import timezone

from evaluator.contract import PROTOCOL_VERSION, Hello, Orders, suite_digest
from leaderboard import audit, broker
from leaderboard.models import User, Worker, WorkerState
from problems.models import Suite

log = structlog.get_logger(__name__)

STATES = {
    WorkerState.ACTIVE: "active",
    WorkerState.DRAINED: "drained",
    WorkerState.QUARANTINED: "quarantined",
    WorkerState.FAILING: "quarantined, its canary fails",
}


@transaction.atomic
def set_state(worker: Worker, state: WorkerState, actor: User | None, *, reason: str) -> bool:
    """Drain, quarantine or activate a worker; ``actor`` None: the site itself. False if it was in that state before."""
    changed = Worker.objects.filter(pk=worker.pk).exclude(state=state).update(state=state, state_reason=reason[:500])
    if changed:
        worker.refresh_from_db()
        audit.write(f"set worker {state}", worker, actor=actor, reason=reason, name=worker.name)
        log.warning("worker state set", worker=worker.name, state=str(state), reason=reason)
        transaction.on_commit(lambda: give_orders([worker]))
    return bool(changed)


def note_hello(worker: Worker, hello: Hello) -> None:
    """Keep what the worker says of itself, and answer with its orders."""
    refusal = _wanted(takes_work=True).refusal(hello)
    if refusal != worker.refusal:
        audit.write("refuse worker" if refusal else "accept worker", worker, reason=refusal, name=worker.name)
        log.warning("worker refused" if refusal else "worker accepted", worker=worker.name, reason=refusal)
    worker.refusal, worker.host, worker.versions = refusal, hello.host, hello.versions
    worker.capabilities = hello.model_dump(
        mode="json", include={"devices", "topology", "suite_digest", "protocol_version", "contract_version"}
    )
    worker.save(update_fields=("refusal", "host", "versions", "capabilities"))
    give_orders([worker])


def note_foreign(worker: Worker, reason: str) -> None:
    """A worker that signs rightly says hello in words that this release does not know: it may not work."""
    if worker.refusal != reason:
        worker.refusal = reason[:1_000]
        worker.save(update_fields=("refusal",))
        audit.write("refuse worker", worker, reason=reason, name=worker.name)
        give_orders([worker])


def suite_changed() -> None:
    """Tell every worker which suite is current now. Those with another one stop, and say so with their next hello."""
    give_orders(Worker.objects.all())


def give_orders(workers: Iterable[Worker]) -> None:
    """Leave their orders in the broker. If it is gone, the next hello of each brings them there."""
    orders = {worker.name: _orders(worker) for worker in workers}
    try:
        broker.give_orders(orders)
    except broker.BrokerUnavailable as error:
        log.warning("broker unavailable, orders not given", workers=len(orders), error=str(error))


def _orders(worker: Worker) -> Orders:
    if worker.state == WorkerState.ACTIVE:
        return _wanted(takes_work=True)
    reason = f"The site has set worker {worker.name} {STATES[WorkerState(worker.state)]}: {worker.state_reason}"
    return _wanted(takes_work=False, reason=reason)


def _wanted(*, takes_work: bool, reason: str = "") -> Orders:
    return Orders(
        takes_work=takes_work, reason=reason[:1_000], protocol_version=PROTOCOL_VERSION, suite_digest=current_digest()
    )


def current_digest() -> str:
    """Digest of the suite that new runs are judged by; "" before the first is loaded."""
    versions = Suite.objects.filter(is_current=True, problem_versions__isnull=False)
    return suite_digest(versions.values_list("problem_versions__problem__number", "problem_versions__digest"))


def seen(worker: Worker) -> None:
    """A message with the worker's signature has come: it lives."""
    Worker.objects.filter(pk=worker.pk).update(last_seen_at=timezone.now())
