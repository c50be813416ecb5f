"""Where a run stands in the queue of its target, and what of it may be tried again."""

from __future__ import annotations

from dataclasses import dataclass

from django.db.models import F

from leaderboard import lifecycle, quotas, turns
from leaderboard.models import Attempt, AttemptState, Evaluation, RunState, Worker


@dataclass(frozen=True)
class Place:
    """``ahead``: files of others before the next one of this run; ``wait``: seconds until it starts, if it is known."""

    ahead: int
    online: int
    wait: float | None


def place_of(evaluation: Evaluation) -> Place | None:
    """The place of the evaluation's next file; None if none waits. Five queries, whatever the length of the queue.

    The wait is what is before it, by the mean of the last evaluations on this target, shared among the workers online.
    """
    queued = Attempt.objects.filter(target=evaluation.target_id, state=AttemptState.QUEUED)
    mine = queued.filter(evaluation=evaluation).order_by(F("sent_at").asc(nulls_last=True), *turns.ORDER).first()
    if mine is None:
        return None
    ahead = turns.before(mine).exclude(evaluation=evaluation).count()
    running = Attempt.objects.filter(target=evaluation.target_id, state=AttemptState.LEASED).count()
    online = Worker.objects.online().filter(target=evaluation.target_id).count()
    typical = quotas.recent_seconds(evaluation.target)
    waves = max(0, ahead + running - online + 1) / online if online else 0.0
    return Place(ahead, online, waves * typical if online and typical is not None else None)


def retriable_in(evaluation: Evaluation) -> int:
    """Files of the evaluation that we failed to judge and that may be tried again."""
    if evaluation.run.state != RunState.ACTIVE or not lifecycle.may_go_on(evaluation):
        return 0
    return lifecycle.retriable(evaluation).count()
