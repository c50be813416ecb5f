"""Writes the audit trail. Call inside the transaction of the deed, so that neither exists without the other."""

from __future__ import annotations

from typing import Any

from django.db.models import Model

from leaderboard.models import AuditEvent, User, Worker

Actor = User | Worker | None
"""Who does it: a person, a worker by its messages, or None for the system itself."""


def write(action: str, subject: Model, *, actor: Actor = None, reason: str = "", **detail: Any) -> AuditEvent:
    """Note that ``actor`` did ``action`` (a verb and a noun, such as "withdraw run") to ``subject``."""
    return AuditEvent.objects.create(
        action=action,
        actor=actor if isinstance(actor, User) else None,
        actor_name=_name(actor),
        subject_type=subject._meta.model_name or "",
        subject_id=str(getattr(subject, "public_id", subject.pk)),
        reason=reason[:500],
        detail=detail,
    )


def _name(actor: Actor) -> str:
    if isinstance(actor, Worker):
        return f"worker {actor.name}"
    return actor.get_username() if isinstance(actor, User) else "system"
