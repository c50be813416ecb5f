"""Whether the machinery runs: workers, queues and how long the oldest file has waited, target by target."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Count, Min, Q

from leaderboard.models import Attempt, AttemptState, Target, Worker

WINDOW = timedelta(hours=24)


@dataclass(frozen=True)
class TargetStatus:
    """``finished``: attempts recorded in the last 24 hours; ``lost`` likewise, which were delivered again."""

    target: Target
    online: int
    queued: int
    running: int
    oldest_seconds: float | None
    finished: int
    lost: int

    @property
    def stuck(self) -> bool:
        """Files wait and nobody is there to take them."""
        return self.queued > 0 and self.online == 0


def read(now: datetime) -> list[TargetStatus]:
    """One line for each open target and for each closed one that still has work; three queries."""
    recent = Q(finished_at__gte=now - WINDOW)
    counts = {
        row["evaluation__target"]: row
        for row in Attempt.objects.values("evaluation__target")
        .annotate(
            queued=Count("pk", filter=Q(state=AttemptState.QUEUED)),
            running=Count("pk", filter=Q(state=AttemptState.LEASED)),
            oldest=Min("created_at", filter=Q(state=AttemptState.QUEUED)),
            finished=Count("pk", filter=recent & Q(state=AttemptState.RECORDED)),
            lost=Count("pk", filter=recent & Q(state=AttemptState.LOST)),
        )
        .filter(Q(queued__gt=0) | Q(running__gt=0) | Q(finished__gt=0) | Q(lost__gt=0))
    }
    online: dict[int, int] = dict(
        Worker.objects.online(at=now).values_list("target").annotate(number=Count("pk")).order_by()
    )
    return [
        _line(target, counts.get(target.pk), online.get(target.pk, 0), now)
        for target in Target.objects.all()
        if target.is_open or target.pk in counts
    ]


def _line(target: Target, row: dict[str, object] | None, online: int, now: datetime) -> TargetStatus:
    if row is None:
        return TargetStatus(target, online, 0, 0, None, 0, 0)
    oldest = row["oldest"]
    return TargetStatus(
        target,
        online,
        int(row["queued"]),  # type: ignore[call-overload]
        int(row["running"]),  # type: ignore[call-overload]
        (now - oldest).total_seconds() if isinstance(oldest, datetime) else None,
        int(row["finished"]),  # type: ignore[call-overload]
        int(row["lost"]),  # type: ignore[call-overload]
    )
