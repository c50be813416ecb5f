"""Whose file is next: the queue of a target stands in the database, and teams take turns in it.

Every queued attempt has a ``turn``. The files of one submission take consecutive turns, from the front of the queue or
from the end of what its team already has waiting, whichever is later (start-time fair queueing, Goyal, Vin and Cheng
1996, with files of equal weight). Served by turn, teams with waiting files get one file each in every round, whatever
the length of their queues; and a team that comes later starts in the round that is on, not behind everybody.

Re-evaluations (``in_campaign``) have turns among themselves and wait until nobody else does.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.db.models import Max, Min, Q, QuerySet
from django.utils import timezone

from leaderboard.models import ACTIVE_STATES, Attempt, AttemptState, Evaluation, Target, Worker

SMALLEST_WINDOW = 4  # wake-ups in the broker for one target, so that a worker finds the next one at once
ORDER = ("turn", "created_at", "pk")


def assign(evaluation: Evaluation, attempts: Sequence[Attempt]) -> None:
    """Give new attempts of ``evaluation``, not yet saved, their turns. Call in the transaction that saves them.

    Holds the target's row, so that two submissions of a team never get the same turns.
    """
    Target.objects.select_for_update(no_key=True).get(pk=evaluation.target_id)
    waiting, front = _waiting(evaluation), front_of(evaluation)
    practice = _is_practice(evaluation, len(attempts))
    if practice:
        first, step = front, 0
    else:
        last = _same_owner(waiting, evaluation).filter(is_practice=False).aggregate(last=Max("turn"))["last"]
        first, step = (front if last is None else max(front, last + 1)), 1
    for place, attempt in enumerate(attempts):
        attempt.turn, attempt.is_practice = first + step * place, practice


def front_of(evaluation: Evaluation) -> int:
    """The turn that is on at the evaluation's target. What is queued again for a failure of ours goes here."""
    turn: int | None = _waiting(evaluation).aggregate(first=Min("turn"))["first"]
    return turn or 0


def choose(target_id: int, *, at: datetime | None = None) -> list[UUID]:
    """The attempts whose wake-ups go to the broker now, in this order; they are marked as sent.

    Only as many as workers can take soon: what is in the broker cannot be overtaken. Two callers never choose the
    same, because both hold the target's row. Nothing is chosen while the window is more than half full, so that each
    visit has several to send.
    """
    window = _window(target_id)
    if _in_broker(target_id) > window // 2:
        return []
    with transaction.atomic():
        Target.objects.select_for_update(no_key=True).get(pk=target_id)
        room = window - _in_broker(target_id)
        unsent = Attempt.objects.filter(
            Q(wait_until=None) | Q(wait_until__lte=at or timezone.now()),
            target=target_id,
            state=AttemptState.QUEUED,
            sent_at=None,
        ).order_by(*ORDER)
        ids = list(unsent.filter(in_campaign=False).values_list("pk", flat=True)[: max(0, room)])
        slots = min(room - len(ids), _campaign_slots(target_id))
        if slots > 0:
            ids += unsent.filter(in_campaign=True).values_list("pk", flat=True)[:slots]
        Attempt.objects.filter(pk__in=ids).update(sent_at=at or timezone.now())
    return ids


def before(attempt: Attempt) -> QuerySet[Attempt]:
    """Queued attempts that are sent to a worker before ``attempt``, which is queued itself."""
    queued = Attempt.objects.filter(target=attempt.target_id, state=AttemptState.QUEUED)
    sooner = Q(turn__lt=attempt.turn) | Q(turn=attempt.turn, created_at__lt=attempt.created_at)
    if attempt.sent_at is not None:
        return queued.filter(sooner, sent_at__isnull=False)
    if attempt.in_campaign:
        return queued.filter(Q(sent_at__isnull=False) | Q(in_campaign=False) | sooner)
    return queued.filter(Q(sent_at__isnull=False) | (Q(in_campaign=False) & sooner))


def _waiting(evaluation: Evaluation) -> QuerySet[Attempt]:
    """Attempts in the same part of the queue whose wake-up is not sent yet; without those that are put aside."""
    return Attempt.objects.filter(
        Q(wait_until=None) | Q(wait_until__lte=timezone.now()),
        target=evaluation.target_id,
        state=AttemptState.QUEUED,
        sent_at=None,
        in_campaign=evaluation.campaign_id is not None,
    )


def _same_owner(attempts: QuerySet[Attempt], evaluation: Evaluation) -> QuerySet[Attempt]:
    """Those that take turns as one with the evaluation: of its team, or of its campaign."""
    if evaluation.campaign_id is not None:
        return attempts.filter(evaluation__campaign=evaluation.campaign_id)
    return attempts.filter(evaluation__run__team=evaluation.run.team_id)


def _is_practice(evaluation: Evaluation, files: int) -> bool:
    """Whether so small a run starts at the front although its team has others waiting: not beyond a limit."""
    if evaluation.campaign_id is not None or files > settings.PRACTICE_FILES:
        return False
    active = Attempt.objects.filter(target=evaluation.target_id, state__in=ACTIVE_STATES, is_practice=True)
    return _same_owner(active, evaluation).count() + files <= settings.PRACTICE_FILES


def _window(target_id: int) -> int:
    return max(SMALLEST_WINDOW, 2 * _online(target_id))


def _in_broker(target_id: int) -> int:
    return Attempt.objects.filter(target=target_id, state=AttemptState.QUEUED, sent_at__isnull=False).count()


def _campaign_slots(target_id: int) -> int:
    """How many more files of re-evaluations may be on their way: one worker is always left to everybody else."""
    on_their_way = Attempt.objects.filter(
        Q(state=AttemptState.LEASED) | Q(state=AttemptState.QUEUED, sent_at__isnull=False),
        target=target_id,
        in_campaign=True,
    )
    return max(1, _online(target_id) - 1) - on_their_way.count()


def _online(target_id: int) -> int:
    return Worker.objects.online().filter(target=target_id).count()
