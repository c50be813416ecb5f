"""Canaries: known files that every host judges now and then, to see whether it still judges right.

What is sent and what must come of it stands in ``data/canaries.json``, one entry a target. A canary goes to one host,
through the host's own queue, and what comes back is a ``Canary`` row: no attempt, no verdict, no score, no quota.

A host whose canary fails takes no more work (state ``failing``). It gets further ones, and ``PASSES_TO_RETURN`` in a
row bring it back; so does a maintainer. A report that says that we failed is followed by a canary of the same host,
because what a submission says of the host proves nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import structlog
from django.conf import settings
from django.db import transaction
from django.utils import timezone
from kombu.exceptions import OperationalError

from evaluator.contract import Backend, Code, Job, Limits, Precision, Report
from evaluator.messaging import EVALUATE_TASK, host_queue
from leaderboard import audit, workers
from leaderboard.lifecycle import Stale
from leaderboard.models import ACTIVE_STATES, Attempt, Canary, Worker, WorkerState
from pkbsite.celery import app
from problems.models import ProblemVersion

log = structlog.get_logger(__name__)

FOLDER = Path(__file__).resolve().parent / "data"
PASSES_TO_RETURN = 2
FAILING_SECONDS = 600.0  # between two canaries of a host whose last one failed
SUSPICION_SECONDS = 300.0  # a canary that is younger answers the question, too
# A canary may have to wait for one evaluation that is under way, and is then as long as one at most.
PATIENCE = timedelta(seconds=2 * Limits().total + 300)


@dataclass(frozen=True)
class Spec:
    """What a target's hosts are sent. ``speedup``: the band in which the ratio must lie; None: any speed will do."""

    target: str
    problem: int
    file: str
    precision: Precision
    backend: Backend
    code: Code
    speedup: tuple[float, float] | None

    @property
    def source(self) -> str:
        return (FOLDER / "canaries" / self.file).read_text(encoding="utf-8")


@cache
def specs() -> Mapping[str, Spec]:
    """What stands in the file, by target."""
    entries = json.loads((FOLDER / "canaries.json").read_text(encoding="utf-8"))["canaries"]
    return {
        target: Spec(
            target=target,
            problem=entry["problem"],
            file=entry["file"],
            precision=Precision(entry["precision"]),
            backend=Backend(entry["backend"]),
            code=Code(entry["code"]),
            speedup=tuple(entry["speedup"]) if entry["speedup"] else None,
        )
        for entry in entries
        for target in entry["targets"]
    }


def visit(*, at: datetime | None = None) -> int:
    """Give up canaries that nobody answered, and send those that are due; returns how many were sent."""
    now = at or timezone.now()
    Canary.objects.pending().filter(sent_at__lt=now - PATIENCE).update(
        finished_at=now, reason=f"no answer within {PATIENCE.total_seconds():.0f} s"
    )
    if not enabled():
        return 0
    able = Worker.objects.present(at=now).filter(refusal="")  # another version of the suite is no fault of the host
    present = able.exclude(state=WorkerState.DRAINED).select_related("target")
    return sum(send(worker, reason, at=now) for worker in present if (reason := _due(worker, now)))


def enabled() -> bool:
    """Whether hosts are checked at all: not where the operator says so, nor where only known files may be judged."""
    return settings.CANARY_SECONDS > 0 and not settings.ONLY_DEMONSTRATION


def suspect(worker: Worker, why: str, *, at: datetime | None = None) -> None:
    """Something went wrong on the host: send it a canary, unless it has just had one."""
    now = at or timezone.now()
    recent = worker.canaries.filter(sent_at__gt=now - timedelta(seconds=SUSPICION_SECONDS))
    if enabled() and not recent.exists():
        send(worker, why, at=now)


def send(worker: Worker, why: str, *, at: datetime | None = None) -> bool:
    """Send the worker its target's canary. False if it has one already, or there is none for its target or suite."""
    spec = specs().get(worker.target.name)
    digest = spec and _digest(spec.problem)
    if not spec or not digest:
        return False
    with transaction.atomic():
        Worker.objects.select_for_update(no_key=True).get(pk=worker.pk)
        if worker.canaries.pending().exists():
            return False
        canary = Canary.objects.create(
            worker=worker, problem_number=spec.problem, sent_at=at or timezone.now(), reason=why[:500]
        )
        transaction.on_commit(lambda: _publish(canary, spec, digest))
    return True


def record(report: Report, worker: Worker, *, at: datetime | None = None) -> Canary:
    """Take what came of a canary, and take the host out of work or back into it.

    Raises ``Stale`` if the worker has no such canary pending: it is answered, given up, or another worker's.
    """
    now = at or timezone.now()
    with transaction.atomic():
        Worker.objects.select_for_update(no_key=True).get(pk=worker.pk)
        canary = worker.canaries.pending().filter(pk=report.attempt_id).first()
        if canary is None:
            raise Stale(f"worker {worker.name} has no canary {report.attempt_id} to answer")
        fault = fault_of(specs()[worker.target.name], report)
        _keep(canary, report, fault, now)
        worker.refresh_from_db()
        if fault and worker.state == WorkerState.ACTIVE:
            workers.set_state(worker, WorkerState.FAILING, None, reason=f"Its canary failed: {fault}")
        elif worker.state == WorkerState.FAILING and _passes(worker) >= PASSES_TO_RETURN:
            reason = f"{PASSES_TO_RETURN} canaries in a row passed"
            workers.set_state(worker, WorkerState.ACTIVE, None, reason=reason)
    if worker.state == WorkerState.FAILING and (not fault or _passes_before(canary)):
        send(worker, "to see whether it was chance", at=now)
    return canary


def fault_of(spec: Spec, report: Report) -> str:
    """What is wrong with a canary's report, as a sentence; "" if nothing is.

    The ratio is refused only where its whole 95 % interval lies outside of the band: a noisy host is not a broken one.
    """
    if report.code is not spec.code:
        return f"the verdict is {report.code}, it must be {spec.code}. {report.message}"
    if spec.speedup is None or report.speedup is None:
        return "" if spec.speedup is None else "it was not timed"
    low, high = spec.speedup
    if report.speedup.high < low or report.speedup.low > high:
        measured = f"{report.speedup.estimate:.3f} ({report.speedup.low:.3f} to {report.speedup.high:.3f})"
        return f"the ratio is {measured}, it must be {low:g} to {high:g}"
    return ""


def _keep(canary: Canary, report: Report, fault: str, now: datetime) -> None:
    canary.finished_at, canary.passed = now, not fault
    canary.reason = (fault or canary.reason)[:500]
    canary.code, canary.message, canary.seconds = report.code, report.message, report.seconds
    if report.speedup is not None:
        canary.speedup = report.speedup.estimate
        canary.speedup_low, canary.speedup_high = report.speedup.low, report.speedup.high
    canary.reference_seconds = report.timing.reference_seconds if report.timing else None
    canary.save()
    audit.write("pass canary" if canary.passed else "fail canary", canary.worker, reason=fault, name=canary.worker.name)
    log.info("canary recorded", canary_id=str(canary.pk), worker=canary.worker.name, passed=canary.passed, fault=fault)


def _passes(worker: Worker) -> int:
    """How many of the worker's last answered canaries passed in a row."""
    answers = worker.canaries.exclude(passed=None).order_by("-finished_at").values_list("passed", flat=True)
    passes = 0
    for passed in answers[:PASSES_TO_RETURN]:
        if not passed:
            break
        passes += 1
    return passes


def _passes_before(canary: Canary) -> bool:
    """Whether the answered canary before this one passed: a first failure is checked at once, further ones later."""
    before = canary.worker.canaries.exclude(passed=None).filter(finished_at__lt=canary.finished_at)
    last = before.order_by("-finished_at").first()
    return last is None or bool(last.passed)


def _due(worker: Worker, now: datetime) -> str:
    """Why the worker gets a canary now; "" if it gets none."""
    last = worker.canaries.order_by("-sent_at").first()
    interval = timedelta(seconds=settings.CANARY_SECONDS)
    if last is None:
        busy = Attempt.objects.filter(target=worker.target_id, state__in=ACTIVE_STATES).exists()
        return "" if busy and worker.registered_at > now - interval else "the host is new"
    if worker.state == WorkerState.FAILING:
        interval = min(interval, timedelta(seconds=FAILING_SECONDS))
    return "its time has come" if last.sent_at <= now - interval else ""


def _digest(problem: int) -> str:
    """Digest of the problem's version in the current suite; "" if it holds none."""
    versions = ProblemVersion.objects.filter(suites__is_current=True, problem__number=problem)
    return versions.values_list("digest", flat=True).first() or ""


def _publish(canary: Canary, spec: Spec, digest: str) -> None:
    target = canary.worker.target
    job = Job(
        attempt_id=canary.pk,
        problem_id=spec.problem,
        problem_digest=digest,
        target=target.name,
        world_size=target.world_size,
        precision=spec.precision,
        backend=spec.backend,
        file_name=spec.file,
        source=spec.source,
        canary=True,
    )
    try:
        app.send_task(
            EVALUATE_TASK,
            args=[job.model_dump_json()],
            queue=host_queue(canary.worker.name),
            task_id=str(canary.pk),
            retry=False,
        )
    except OperationalError as error:
        log.warning("broker unavailable, canary not sent", worker=canary.worker.name, error=str(error))
        Canary.objects.filter(pk=canary.pk).delete()
