"""Who may evaluate. A worker that is not active is refused when it claims; what it holds, it may finish."""

from __future__ import annotations

from django.db import transaction

from leaderboard import audit
from leaderboard.models import User, Worker, WorkerState


@transaction.atomic
def set_state(worker: Worker, state: WorkerState, actor: User, *, reason: str) -> bool:
    """Drain, quarantine or activate a worker. False if it already was in that state."""
    changed = Worker.objects.filter(pk=worker.pk).exclude(state=state).update(state=state)
    if changed:
        audit.write(f"set worker {state}", worker, actor=actor, reason=reason, name=worker.name)
    return bool(changed)
