"""Whether the machinery runs: workers, queues, how long the oldest file has waited, canaries, what happened lately."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import median

from django.conf import settings
from django.db.models import Count, Min, Q

from evaluator.messaging import RESULTS_QUEUE
from leaderboard import broker, canaries
from leaderboard.figures import ratio_text, seconds_text
from leaderboard.models import (
    ACTIVE_STATES,
    Attempt,
    AttemptState,
    AuditEvent,
    Canary,
    Target,
    Worker,
    WorkerState,
)

WINDOW = timedelta(hours=24)
SHOWN_CANARIES = 24  # of each host
CANARY_DAYS = timedelta(days=2)
MEMORY = timedelta(days=14)  # hosts that are gone for longer, and what happened before, are not shown
INCIDENTS = 10
MANY_MESSAGES = 1_000  # a results worker that lives has never so many before it
DRIFT = 0.25  # of the reference's time against the host's own median; beyond that it is marked
FEWEST_FOR_DRIFT = 4

_INCIDENTS = {
    "set worker active": "takes work again",
    "set worker drained": "was drained",
    "set worker quarantined": "was quarantined",
    "set worker failing": "was quarantined",
    "refuse worker": "was refused",
    "accept worker": "was accepted again",
}


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

    @property
    def late(self) -> bool:
        """The oldest file has waited for so long that somebody should look."""
        return self.oldest_seconds is not None and self.oldest_seconds > settings.ALERT_SECONDS


@dataclass(frozen=True)
class WorkerStatus:
    """``canaries``: the answered ones of the last two days, oldest first. ``band``: where their ratios must lie."""

    worker: Worker
    seen_seconds: float | None
    present: bool
    canaries: tuple[Canary, ...]
    band: tuple[float, float] | None

    @property
    def takes_work(self) -> bool:
        return self.present and self.worker.takes_work

    @property
    def state(self) -> str:
        if self.worker.state == WorkerState.ACTIVE and self.worker.refusal:
            return "Refused"
        return self.worker.get_state_display() if self.present else "Away"

    @property
    def last(self) -> Canary | None:
        return self.canaries[-1] if self.canaries else None

    @property
    def drift(self) -> float | None:
        """By which share the reference's time in the last canary differs from the median of those before."""
        times = [c.reference_seconds for c in self.canaries if c.reference_seconds]
        if len(times) <= FEWEST_FOR_DRIFT:
            return None
        return times[-1] / median(times[:-1]) - 1

    @property
    def drifts(self) -> bool:
        return self.drift is not None and abs(self.drift) > DRIFT

    @property
    def drift_text(self) -> str:
        return "" if self.drift is None else f"{100 * self.drift:+.0f} %"

    @property
    def devices(self) -> str:
        """'4 × NVIDIA H100 80GB HBM3'."""
        models = Counter(self.worker.capabilities.get("devices", ()))
        return ", ".join(f"{number} × {model}" if number > 1 else model for model, number in models.items())

    @property
    def versions(self) -> str:
        """'torch 2.13.0, CUDA 12.8, …': those that decide a verdict, in a fixed order."""
        names = {"code": "code", "torch": "torch", "cuda": "CUDA", "nccl": "NCCL", "driver": "driver"}
        has = self.worker.versions
        return ", ".join(f"{text} {has[name]}" for name, text in names.items() if name in has)


@dataclass(frozen=True)
class Incident:
    at: datetime
    text: str


@dataclass(frozen=True)
class Status:
    lines: list[TargetStatus]
    workers: list[WorkerStatus]
    alerts: list[str]
    incidents: list[Incident]
    waiting: int | None
    """Messages of workers that wait to be recorded; None: the broker does not answer."""


def read(now: datetime) -> Status:
    """Everything that the page shows; six queries and one visit to the broker."""
    lines, workers, waiting = _targets(now), _workers(now), _waiting()
    return Status(lines, workers, list(_alerts(lines, workers, waiting)), _incidents(now), waiting)


def _targets(now: datetime) -> list[TargetStatus]:
    """One line for each open target and for each closed one that still has work."""
    active = {
        row["target"]: row
        for row in Attempt.objects.filter(state__in=ACTIVE_STATES)
        .values("target")
        .order_by()
        .annotate(
            queued=Count("pk", filter=Q(state=AttemptState.QUEUED)),
            running=Count("pk", filter=Q(state=AttemptState.LEASED)),
            oldest=Min("created_at", filter=Q(state=AttemptState.QUEUED)),
        )
    }
    recent = Attempt.objects.filter(finished_at__gte=now - WINDOW).values("target", "state").order_by()
    ended = {(row["target"], row["state"]): row["number"] for row in recent.annotate(number=Count("pk"))}
    present = Worker.objects.online(at=now).values_list("target").annotate(number=Count("pk")).order_by()
    online: dict[int, int] = dict(present)
    lines = []
    for target in Target.objects.all():
        row = active.get(target.pk)
        if not target.is_open and row is None:
            continue
        oldest = row["oldest"] if row else None
        lines.append(
            TargetStatus(
                target,
                online=online.get(target.pk, 0),
                queued=row["queued"] if row else 0,
                running=row["running"] if row else 0,
                oldest_seconds=(now - oldest).total_seconds() if oldest else None,
                finished=ended.get((target.pk, AttemptState.RECORDED), 0),
                lost=ended.get((target.pk, AttemptState.LOST), 0),
            )
        )
    return lines


def _workers(now: datetime) -> list[WorkerStatus]:
    answers: dict[int, list[Canary]] = {}
    for canary in Canary.objects.filter(sent_at__gte=now - CANARY_DAYS).exclude(passed=None).order_by("finished_at"):
        answers.setdefault(canary.worker_id, []).append(canary)
    present = set(Worker.objects.present(at=now).values_list("pk", flat=True))
    known = Worker.objects.select_related("target").filter(Q(last_seen_at=None) | Q(last_seen_at__gte=now - MEMORY))
    return [
        WorkerStatus(
            worker,
            seen_seconds=(now - worker.last_seen_at).total_seconds() if worker.last_seen_at else None,
            present=worker.pk in present,
            canaries=tuple(answers.get(worker.pk, ())[-SHOWN_CANARIES:]),
            band=spec.speedup if (spec := canaries.specs().get(worker.target.name)) else None,
        )
        for worker in known.order_by("target__order", "target__name", "name")
    ]


def _waiting() -> int | None:
    try:
        return broker.queue_lengths([RESULTS_QUEUE])[RESULTS_QUEUE]
    except broker.BrokerUnavailable:
        return None


def _alerts(lines: Iterable[TargetStatus], workers: Iterable[WorkerStatus], waiting: int | None) -> Iterable[str]:
    if waiting is None:
        yield "The broker does not answer. Files that are sent now wait in the database; nothing is lost."
    elif waiting > MANY_MESSAGES:
        yield f"{waiting:,} messages of workers wait to be recorded; verdicts come late."
    for line in lines:
        waits = f"the oldest for {seconds_text(line.oldest_seconds)}"
        if line.stuck:
            yield f"{line.target.title}: no worker takes work, and {_files(line.queued)}, {waits}."
        elif line.late:
            yield (
                f"{line.target.title}: {_files(line.queued)}, {waits}; "
                f"more than {seconds_text(settings.ALERT_SECONDS)} is unusual."
            )
    for status in workers:
        if status.present and (why := status.worker.why_not):
            yield f"Worker {status.worker.name} of {status.worker.target.name} takes no work. {why}"
        elif status.takes_work and status.drifts and status.last:
            yield (
                f"Worker {status.worker.name} of {status.worker.target.name} drifts: its reference took "
                f"{status.drift_text} against its own median. Its canary passes, at {ratio_text(status.last.speedup)}."
            )


def _files(number: int) -> str:
    return "1 file waits" if number == 1 else f"{number:,} files wait"


def _incidents(now: datetime) -> list[Incident]:
    events = AuditEvent.objects.filter(
        subject_type="worker", action__in=_INCIDENTS, created_at__gte=now - MEMORY
    ).order_by("-created_at")[:INCIDENTS]
    return [Incident(event.created_at, _sentence(event)) for event in events]


def _sentence(event: AuditEvent) -> str:
    text = f"Worker {event.detail.get('name', event.subject_id)} {_INCIDENTS[event.action]}"
    return f"{text}: {event.reason}" if event.reason else f"{text}."
