"""What a team may use: evaluation seconds on each target in a rolling window, single-shot runs in a calendar month.

Seconds are charged when a verdict is recorded, on success and on failures of the submission's own; failures of ours are
free. What waits or runs is counted with an estimate, so that many runs confirmed at once do not pass together.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

from django.conf import settings
from django.db import transaction
from django.db.models import Q, QuerySet, Sum

from evaluator.contract import Code
from leaderboard import audit
from leaderboard.models import Attempt, QuotaEntry, RankedModel, Run, Target, Team, Track, User, Verdict

RECENT = 100  # charged evaluations of a target whose mean stands for what the next file will take
UNKNOWN_SECONDS = 60.0  # for a file on a target where nothing was evaluated yet


@dataclass(frozen=True)
class Refusal:
    """Why a run is not taken now. ``retry_at``: from when on it would be; None if it never would as it is."""

    code: str
    sentence: str
    retry_at: datetime | None


@dataclass(frozen=True)
class Usage:
    """Evaluation seconds of a team on a target. ``reserved``: for what waits or runs; ``limit`` holds grants, too."""

    used: float
    reserved: float
    limit: float | None

    @property
    def left(self) -> float | None:
        return None if self.limit is None else max(0.0, self.limit - self.used - self.reserved)


def usage(team: Team, target: Target, *, at: datetime) -> Usage:
    """How much the team has used and reserved at the moment ``at``; three queries."""
    sums = _entries(team, target, at).aggregate(
        charged=Sum("seconds", filter=Q(seconds__gt=0)), granted=Sum("seconds", filter=Q(seconds__lt=0))
    )
    waiting, limit = _active(team, target), limit_of(team, target)
    return Usage(
        used=sums["charged"] or 0.0,
        reserved=waiting * typical_seconds(target) if waiting else 0.0,
        limit=None if limit is None else limit - (sums["granted"] or 0.0),
    )


def limit_of(team: Team, target: Target) -> float | None:
    """The team's own limit, else the target's, else the setting; 0 stands for none."""
    own = (team.quota_seconds, target.quota_seconds, settings.QUOTA_SECONDS)
    return next(float(limit) for limit in own if limit is not None) or None


def typical_seconds(target: Target) -> float:
    """What one file is reckoned with on the target."""
    recent = recent_seconds(target)
    return UNKNOWN_SECONDS if recent is None else recent


def recent_seconds(target: Target) -> float | None:
    """The mean of the last hundred charged evaluations on the target; None if there were none."""
    recent = QuotaEntry.objects.filter(target=target, attempt__isnull=False).order_by("-created_at")
    seconds = list(recent.values_list("seconds", flat=True)[:RECENT])
    return fmean(seconds) if seconds else None


def check_seconds(team: Team, targets: Iterable[Target], files: int, *, at: datetime) -> Refusal | None:
    """Whether the team has the seconds for ``files`` more files on each of ``targets``.

    Call in the transaction that queues them: it holds the team's row, so that of two runs confirmed at once the second
    sees the first.
    """
    team = Team.objects.select_for_update(no_key=True).get(pk=team.pk)
    for target in targets:
        now = usage(team, target, at=at)
        need = files * typical_seconds(target)
        if now.limit is not None and now.used + now.reserved + need > now.limit:
            return _refusal(team, target, files, need, now, at)
    return None


def check_single_shot(model: RankedModel, track: str, *, at: datetime) -> Refusal | None:
    """Whether the model may have one more single-shot run this month. Withdrawn ones count: all are shown.

    Call in the transaction that makes the run: it holds the model's row.
    """
    if track != Track.SINGLE_SHOT:
        return None
    model = RankedModel.objects.select_for_update(no_key=True).get(pk=model.pk)
    limit = settings.SINGLE_SHOT_RUNS if model.single_shot_runs is None else model.single_shot_runs
    month = at.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
    sent = Run.objects.filter(model=model, track=Track.SINGLE_SHOT, created_at__gte=month).count()
    if not limit or sent < limit:
        return None
    following = (month + timedelta(days=32)).replace(day=1)
    sentence = (
        f"{model} has sent {sent} single-shot runs this month; the limit is {limit}, because the best of many would be "
        f"no single shot. The next one is taken from {_moment(following)} on. Your upload stays as it is until then; "
        "or send several samples as a multi-sample run."
    )
    return Refusal("single_shot_limit", sentence, following)


def charge(verdict: Verdict) -> None:
    """Charge the evaluation's seconds to the team. Failures of ours are free."""
    if verdict.code != Code.HARNESS_FAILURE:
        QuotaEntry.objects.create(
            team=verdict.evaluation.run.team,
            target=verdict.evaluation.target,
            attempt=verdict.attempt,
            seconds=verdict.seconds,
            reason=f"evaluation: {verdict.code}",
            created_at=verdict.created_at,
        )


@transaction.atomic
def grant(team: Team, target: Target, seconds: float, actor: User, *, reason: str) -> QuotaEntry:
    """Give the team ``seconds`` on the target beyond its limit, for as long as one window."""
    entry = QuotaEntry.objects.create(team=team, target=target, seconds=-abs(seconds), reason=reason[:200])
    audit.write("grant quota", team, actor=actor, reason=reason, target=target.name, seconds=abs(seconds))
    return entry


def _window() -> timedelta:
    return timedelta(seconds=settings.QUOTA_WINDOW_SECONDS)


def _entries(team: Team, target: Target, at: datetime) -> QuerySet[QuotaEntry]:
    return QuotaEntry.objects.filter(team=team, target=target, created_at__gt=at - _window())


def _active(team: Team, target: Target) -> int:
    return Attempt.objects.active().filter(target=target, evaluation__run__team=team).count()


def _refusal(team: Team, target: Target, files: int, need: float, now: Usage, at: datetime) -> Refusal:
    assert now.limit is not None
    days = settings.QUOTA_WINDOW_SECONDS / 86_400
    head = (
        f"The team {team} has used {now.used:,.0f} s of its {now.limit:,.0f} evaluation seconds on {target} "
        f"in the last {days:.3g} days"
    )
    if now.reserved:
        head += f", and what still waits or runs is counted with {now.reserved:,.0f} s"
    head += f"; this run of {files} file{'s' if files != 1 else ''} needs about {need:,.0f} s."
    when = _room_at(team, target, need, now.reserved, at)
    if when is None:
        most = int(now.limit * files / need)
        tail = f" That is more than the whole limit: send at most {most} files at a time, or ask the maintainers."
    else:
        tail = f" There is room again from {_moment(when)} on. Your upload stays as it is: confirm it then."
    return Refusal("quota", head + tail, when)


def _room_at(team: Team, target: Target, need: float, reserved: float, at: datetime) -> datetime | None:
    """The first moment at which enough of what was used has left the window; what is reserved counts as used now."""
    limit = limit_of(team, target)
    assert limit is not None
    entries = list(_entries(team, target, at).order_by("created_at").values_list("created_at", "seconds"))
    total = sum(seconds for _, seconds in entries) + reserved
    for used_at, seconds in [*entries, (at, reserved)]:
        total -= seconds
        if total + need <= limit:
            return used_at + _window()
    return None


def _moment(moment: datetime) -> str:
    return f"{moment:%-d %B %Y, %H:%M} UTC"
