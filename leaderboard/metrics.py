"""What the machinery tells a Prometheus server of itself, read anew at each scrape.

A fixed number of queries, whatever the number of verdicts: the queue by its index, the workers, the newest canary of
each, and the counters of ``leaderboard.tallies``. docs/operations.md has the table of the metrics.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from django.db.models import Count, Min, OuterRef, Subquery
from django.utils import timezone
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from evaluator.messaging import RESULTS_QUEUE
from leaderboard import broker, tallies
from leaderboard.models import ACTIVE_STATES, Attempt, AttemptState, Canary, Tally, Target, Worker, WorkerState


class SiteCollector(Collector):
    """Register it in a registry and expose that. ``describe`` is empty: nothing is read before the first scrape."""

    def describe(self) -> list[Metric]:
        return []

    def collect(self) -> Iterator[Metric]:
        now = timezone.now()
        queues = dict(Target.objects.values_list("name", "queue"))
        yield from _queue(list(queues), now)
        yield from _broker(queues)
        workers = list(Worker.objects.select_related("target"))
        yield from _workers(workers, list(queues), now)
        yield from _canaries(now)
        yield from _counters()


def _queue(targets: list[str], now: datetime) -> Iterator[Metric]:
    attempts = GaugeMetricFamily("pkb_attempts", "Attempts that are not over, by state.", labels=("target", "state"))
    oldest = GaugeMetricFamily("pkb_oldest_queued_seconds", "How long the oldest file waits.", labels=("target",))
    rows = Attempt.objects.filter(state__in=ACTIVE_STATES).values("target__name", "state").order_by()
    found = {
        (row["target__name"], row["state"]): row for row in rows.annotate(number=Count("pk"), first=Min("created_at"))
    }
    for target in targets:
        for state in ACTIVE_STATES:
            row = found.get((target, state))
            attempts.add_metric((target, state), row["number"] if row else 0)
        first = found.get((target, AttemptState.QUEUED))
        oldest.add_metric((target,), (now - first["first"]).total_seconds() if first else 0)
    yield attempts
    yield oldest


def _broker(queues: dict[str, str]) -> Iterator[Metric]:
    up = GaugeMetricFamily("pkb_broker_up", "Whether the broker answers.")
    results = GaugeMetricFamily("pkb_results_queue_length", "Messages of workers that wait to be recorded.")
    waiting = GaugeMetricFamily("pkb_queue_length", "Wake-ups that wait in the broker.", labels=("target",))
    try:
        lengths = broker.queue_lengths([RESULTS_QUEUE, *queues.values()])
    except broker.BrokerUnavailable:
        up.add_metric((), 0)
        yield up
        return
    up.add_metric((), 1)
    results.add_metric((), lengths[RESULTS_QUEUE])
    for target, queue in queues.items():
        waiting.add_metric((target,), lengths[queue])
    yield from (up, results, waiting)


def _workers(workers: list[Worker], targets: list[str], now: datetime) -> Iterator[Metric]:
    online = GaugeMetricFamily("pkb_workers_online", "Workers that live and take work.", labels=("target",))
    states = GaugeMetricFamily("pkb_workers", "Registered workers by state.", labels=("target", "state"))
    seen = GaugeMetricFamily(
        "pkb_worker_last_seen_seconds", "How long ago each worker gave a sign of life.", labels=("target", "worker")
    )
    living = set(Worker.objects.online(at=now).values_list("pk", flat=True))
    for target in targets:
        own = [worker for worker in workers if worker.target.name == target]
        online.add_metric((target,), sum(worker.pk in living for worker in own))
        for state in WorkerState.values:
            states.add_metric((target, state), sum(worker.state == state for worker in own))
    for worker in workers:
        if worker.last_seen_at is not None:
            seen.add_metric((worker.target.name, worker.name), (now - worker.last_seen_at).total_seconds())
    yield from (online, states, seen)


def _canaries(now: datetime) -> Iterator[Metric]:
    labels = ("target", "worker")
    passed = GaugeMetricFamily("pkb_canary_passed", "Whether the last canary passed.", labels=labels)
    ratio = GaugeMetricFamily("pkb_canary_ratio", "Ratio that the last canary measured.", labels=labels)
    reference = GaugeMetricFamily(
        "pkb_canary_reference_seconds", "Time of the reference in the last canary.", labels=labels
    )
    age = GaugeMetricFamily("pkb_canary_age_seconds", "How long ago the last canary was answered.", labels=labels)
    newest = Canary.objects.filter(worker=OuterRef("pk")).exclude(passed=None).order_by("-finished_at").values("pk")[:1]
    last = Canary.objects.filter(pk__in=Worker.objects.annotate(last=Subquery(newest)).values("last"))
    for canary in last.select_related("worker__target"):
        who = (canary.worker.target.name, canary.worker.name)
        passed.add_metric(who, int(bool(canary.passed)))
        if canary.speedup is not None:
            ratio.add_metric(who, canary.speedup)
        if canary.reference_seconds is not None:
            reference.add_metric(who, canary.reference_seconds)
        if canary.finished_at is not None:
            age.add_metric(who, (now - canary.finished_at).total_seconds())
    yield from (passed, ratio, reference, age)


def _counters() -> Iterator[Metric]:
    reports = CounterMetricFamily("pkb_reports", "Reports that were taken, by code.", labels=("target", "code"))
    ends = CounterMetricFamily("pkb_attempts_ended", "Attempts that ended, by how.", labels=("target", "state"))
    refused = CounterMetricFamily("pkb_messages_refused", "Messages that were refused.", labels=("why",))
    phases = SummaryMetricFamily("pkb_phase_seconds", "Time of the phases of evaluations.", labels=("target", "phase"))
    whole = SummaryMetricFamily("pkb_evaluation_seconds", "Time of whole evaluations.", labels=("target",))
    waits = SummaryMetricFamily("pkb_queue_wait_seconds", "From queue to worker.", labels=("target",))
    for row in Tally.objects.all():
        match row.name:
            case tallies.REPORTS:
                reports.add_metric((row.target, row.label), row.count)
            case tallies.ENDS:
                ends.add_metric((row.target, row.label), row.count)
            case tallies.REFUSED:
                refused.add_metric((row.label,), row.count)
            case tallies.PHASES:
                phases.add_metric((row.target, row.label), row.count, row.seconds)
            case tallies.EVALUATIONS:
                whole.add_metric((row.target,), row.count, row.seconds)
            case tallies.WAITS:
                waits.add_metric((row.target,), row.count, row.seconds)
    yield from (reports, ends, refused, phases, whole, waits)
