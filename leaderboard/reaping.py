"""Brings back what was lost: attempts of workers that died, wake-ups that went with the broker."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from evaluator.messaging import RESULTS_QUEUE
from leaderboard import broker, dispatch, lifecycle, turns
from leaderboard.models import Attempt, AttemptState, SourceFile, Target, Upload, UploadState

log = structlog.get_logger(__name__)

BATCH = 500  # attempts handled in one visit; the next one takes the rest
PATIENCE = 10  # leases; for so long an unread sign of life may wait in the results queue


@dataclass(frozen=True)
class Reaped:
    """What a visit did: leases ended, wake-ups sent, uploads removed that nobody confirmed."""

    expired: int = 0
    resent: int = 0
    forgotten: int = 0


def reap(*, at: datetime | None = None) -> Reaped:
    """End leases that ran out, send lost wake-ups again, remove uploads that nobody confirmed.

    Does nothing to attempts while the broker is away: no sign of life arrives then either, so nobody may be declared
    dead; and after a time without the reaper (everything was down) the first visit only looks, so that living workers
    can speak first.
    """
    now = at or timezone.now()
    forgotten = _forget_previews(now)
    try:
        waiting = broker.queue_lengths([RESULTS_QUEUE])[RESULTS_QUEUE]
        first_visit = not broker.reaper_came_by(2 * settings.REAPER_SECONDS + 5)
        expired = 0 if first_visit else _expire(now, waiting)
        return Reaped(expired, _resend(now), forgotten)
    except broker.BrokerUnavailable as error:
        log.warning("broker unavailable, nothing reaped", error=str(error))
        return Reaped(forgotten=forgotten)


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


@transaction.atomic
def _forget_previews(now: datetime) -> int:
    """Remove uploads that were not confirmed in time, and the files that belong to nothing else."""
    limit = now - timedelta(seconds=settings.PREVIEW_SECONDS)
    late = Upload.objects.select_for_update().filter(state=UploadState.PREVIEWED, created_at__lt=limit)
    ids = list(late.values_list("pk", flat=True)[:BATCH])
    if not ids:
        return 0
    sources = list(SourceFile.objects.filter(uploads__in=ids).values_list("pk", flat=True).distinct())
    Upload.objects.filter(pk__in=ids).delete()
    list(SourceFile.objects.select_for_update(no_key=True).filter(pk__in=sources).order_by("pk").values_list("pk"))
    SourceFile.objects.filter(pk__in=sources, uploads=None, submissions=None).delete()
    return len(ids)
