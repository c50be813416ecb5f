"""Brings back what was lost: attempts of workers that died, wake-ups that went with the broker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.utils import timezone

from evaluator.messaging import RESULTS_QUEUE
from leaderboard import broker, dispatch, lifecycle, turns
from leaderboard.models import Attempt, AttemptState, Target

log = structlog.get_logger(__name__)

BATCH = 500  # attempts handled in one visit; the next one takes the rest
PATIENCE = 10  # leases; for so long an unread sign of life may wait in the results queue


@dataclass(frozen=True)
class Reaped:
    """What a visit did: leases ended, wake-ups sent again."""

    expired: int = 0
    resent: int = 0


def reap(*, at: datetime | None = None) -> Reaped:
    """End leases that ran out and send lost wake-ups again. Does nothing while the broker is away.

    Without the broker no sign of life arrives either, so nobody may be declared dead; and after a time without the
    reaper (everything was down) the first visit only looks, so that living workers can speak first.
    """
    now = at or timezone.now()
    try:
        waiting = broker.queue_lengths([RESULTS_QUEUE])[RESULTS_QUEUE]
        first_visit = not broker.reaper_came_by(2 * settings.REAPER_SECONDS + 5)
        expired = 0 if first_visit else _expire(now, waiting)
        return Reaped(expired, _resend(now))
    except broker.BrokerUnavailable as error:
        log.warning("broker unavailable, nothing reaped", error=str(error))
        return Reaped()


def _expire(now: datetime, waiting: int) -> int:
    """End the leases that ran out. While reports wait to be read, a renewal may be among them: allow for that."""
    grace = timedelta(seconds=PATIENCE * settings.LEASE_SECONDS if waiting else 0)
    ids = (
        Attempt.objects.filter(state=AttemptState.LEASED, lease_expires_at__lt=now - grace)
        .order_by("lease_expires_at")
        .values_list("pk", flat=True)[:BATCH]
    )
    return sum(lifecycle.expire_lease(attempt_id, at=now) for attempt_id in list(ids))


def _resend(now: datetime) -> int:
    """Send again the wake-ups that must be missing: more are sent and not taken than messages wait.

    Only attempts that wait for a while are sent again, the first in turn and no more than are missing, so a long queue
    does not fill the broker with copies. Then send what is new, where there is room.
    """
    patience = now - timedelta(seconds=settings.RESEND_SECONDS)
    sent = 0
    targets = list(Target.objects.filter(attempts__state=AttemptState.QUEUED).distinct())
    lengths = broker.queue_lengths(target.queue for target in targets)
    for target in targets:
        on_their_way = Attempt.objects.filter(target=target, state=AttemptState.QUEUED, sent_at__isnull=False)
        missing = on_their_way.count() - lengths[target.queue]
        late = on_their_way.filter(sent_at__lt=patience).order_by(*turns.ORDER).values_list("pk", flat=True)
        sent += dispatch.send(list(late[: max(0, min(missing, BATCH))]), at=now)
        sent += dispatch.refill(target.pk, at=now)
    return sent
