"""What a Prometheus server reads, who may read it, and what reading it costs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from prometheus_client.parser import text_string_to_metric_families

from evaluator.contract import Claim
from leaderboard import lifecycle, recording
from leaderboard.models import Attempt, Canary, Tally
from tests.factories import AttemptFactory, TargetFactory, UserFactory, VerdictFactory, WorkerFactory
from tests.leaderboard.conftest import FakeBroker
from tests.reports import report_for

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


def scrape(client: Client) -> dict[tuple[str, ...], float]:
    """(name, value of each label in the order of the labels' names) -> value."""
    response = client.get("/metrics")
    assert response.status_code == 200
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(response.content.decode())
        for sample in family.samples
        if sample.name.startswith("pkb_")
    }


def test_the_queue_is_told_by_state_and_target(client: Client, messages: FakeBroker) -> None:
    messages.lengths = {"eval.cpu-gloo": 3, "results": 7}
    target = TargetFactory()
    TargetFactory(name="h100x8")
    AttemptFactory.create_batch(3, evaluation__target=target)
    Attempt.objects.update(created_at=NOW)
    AttemptFactory(evaluation__target=target, leased=True)
    found = scrape(client)
    assert found["pkb_attempts", "queued", "cpu-gloo"] == 3
    assert found["pkb_attempts", "leased", "cpu-gloo"] == 1
    assert found["pkb_attempts", "queued", "h100x8"] == 0
    assert found["pkb_oldest_queued_seconds", "cpu-gloo"] > 0
    assert found["pkb_oldest_queued_seconds", "h100x8"] == 0
    assert (found["pkb_queue_length", "cpu-gloo"], found["pkb_results_queue_length",], found["pkb_broker_up",]) == (
        3,
        7,
        1,
    )


def test_a_broker_that_is_gone_is_a_metric_and_no_error(client: Client, messages: FakeBroker) -> None:
    messages.up = False
    found = scrape(client)
    assert found["pkb_broker_up",] == 0
    assert ("pkb_results_queue_length",) not in found


def test_workers_and_their_canaries(client: Client) -> None:
    from django.utils import timezone

    now = timezone.now()
    well = WorkerFactory(name="well", last_seen_at=now)
    WorkerFactory(name="gone", last_seen_at=now - timedelta(hours=1))
    WorkerFactory(name="out", last_seen_at=now, state="failing")
    for passed, ratio, age in ((False, 3.0, 60), (True, 1.02, 10)):
        Canary.objects.create(
            worker=well,
            problem_number=13,
            passed=passed,
            speedup=ratio,
            reference_seconds=0.004,
            finished_at=now - timedelta(seconds=age),
        )
    found = scrape(client)
    assert found["pkb_workers_online", "cpu-gloo"] == 1
    assert found["pkb_workers", "active", "cpu-gloo"] == 2
    assert found["pkb_workers", "failing", "cpu-gloo"] == 1
    assert found["pkb_worker_last_seen_seconds", "cpu-gloo", "gone"] > 3_500
    assert found["pkb_canary_passed", "cpu-gloo", "well"] == 1
    assert found["pkb_canary_ratio", "cpu-gloo", "well"] == 1.02
    assert found["pkb_canary_reference_seconds", "cpu-gloo", "well"] == 0.004


def test_what_happens_is_counted_once(client: Client, django_capture_on_commit_callbacks: Any) -> None:
    worker = WorkerFactory()
    attempts = [AttemptFactory(evaluation__target=worker.target, created_at=NOW) for _ in range(2)]
    with django_capture_on_commit_callbacks(execute=True):
        for attempt in attempts:
            claim = Claim(attempt_id=attempt.pk, attempt_number=1)
            lifecycle.lease_attempt(claim, worker, at=NOW + timedelta(seconds=30))
        lifecycle.record_report(report_for(attempts[0]), worker)
        lifecycle.record_report(report_for(attempts[0]), worker)  # delivered twice
        lifecycle.record_report(report_for(attempts[1], code="harness_failure", message="No driver."), worker)
        recording.note_refusal(recording.Refused("too long", "oversized"), "x")
    found = scrape(client)
    assert found["pkb_reports_total", "correct", "cpu-gloo"] == 1
    assert found["pkb_reports_total", "harness_failure", "cpu-gloo"] == 1
    assert found["pkb_attempts_ended_total", "recorded", "cpu-gloo"] == 1
    assert found["pkb_attempts_ended_total", "lost", "cpu-gloo"] == 1
    assert (found["pkb_queue_wait_seconds_count", "cpu-gloo"], found["pkb_queue_wait_seconds_sum", "cpu-gloo"]) == (
        2,
        60,
    )
    assert (
        found["pkb_evaluation_seconds_count", "cpu-gloo"],
        found["pkb_evaluation_seconds_sum", "cpu-gloo"],
    ) == (2, 25)
    assert found["pkb_phase_seconds_count", "static", "cpu-gloo"] == 2
    assert found["pkb_messages_refused_total", "oversized"] == 1


def test_a_cancelled_run_counts_every_attempt(django_capture_on_commit_callbacks: Any) -> None:
    attempt = AttemptFactory()
    AttemptFactory(evaluation=attempt.evaluation)
    with django_capture_on_commit_callbacks(execute=True):
        lifecycle.cancel_run(attempt.evaluation.run, UserFactory())
    assert Tally.objects.get(name="ends", label="cancelled").count == 2


def test_a_scrape_asks_a_fixed_number_of_queries_and_never_reads_verdicts(client: Client) -> None:
    scrape(client)  # what Django asks once only

    def queries() -> list[str]:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            scrape(client)
        return [query["sql"] for query in captured]

    VerdictFactory()
    few = queries()
    for number in range(5):
        worker = WorkerFactory()
        Canary.objects.create(worker=worker, problem_number=13, passed=True, finished_at=NOW)
        VerdictFactory.create_batch(3)
        AttemptFactory(evaluation__target=TargetFactory(name=f"other-{number}"))
    many = queries()
    assert len(few) == len(many) <= 6
    assert not [sql for sql in many if "leaderboard_verdict" in sql]
    [of_attempts] = [sql for sql in many if 'FROM "leaderboard_attempt"' in sql]
    assert "'queued', 'leased'" in of_attempts  # bounded by the queue: what is over is not counted


@pytest.mark.parametrize(
    ("headers", "address", "token", "status"),
    [
        ({}, "127.0.0.1", "", 200),
        ({}, "::1", "", 200),
        ({}, "10.0.0.7", "", 404),
        ({"X-Forwarded-For": "203.0.113.9"}, "127.0.0.1", "", 404),  # a proxy on this machine
        ({"X-Forwarded-Proto": "https"}, "127.0.0.1", "", 404),
        ({"Forwarded": "for=203.0.113.9"}, "127.0.0.1", "", 404),
        ({}, "127.0.0.1", "s3cret", 404),
        ({"Authorization": "Bearer wrong"}, "10.0.0.7", "s3cret", 404),
        ({"Authorization": "s3cret"}, "10.0.0.7", "s3cret", 404),
        ({"Authorization": "Bearer s3crét"}, "10.0.0.7", "s3cret", 404),
        ({"Authorization": "Bearer s3cret"}, "10.0.0.7", "s3cret", 200),
    ],
)
def test_who_may_read(
    client: Client, settings: Any, headers: dict[str, str], address: str, token: str, status: int
) -> None:
    settings.METRICS_TOKEN = token
    assert client.get("/metrics", headers=headers, REMOTE_ADDR=address).status_code == status


def test_requests_are_counted_too(client: Client) -> None:
    client.get("/healthz")
    text = client.get("/metrics").content.decode()
    assert "django_http_requests_total_by_view_transport_method_total" in text
