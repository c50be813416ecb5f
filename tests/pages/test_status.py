"""The status page: who is there, what waits, what is wrong, in words that somebody outside can read."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from leaderboard import broker, workers
from leaderboard.models import Attempt, AttemptState, Canary, Worker, WorkerState
from leaderboard.pages import status as reading
from tests.factories import AttemptFactory, EvaluationFactory, TargetFactory, UserFactory, WorkerFactory
from tests.pages.site import Site

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def waiting(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Lengths of the broker's queues; empty: it does not answer."""
    lengths = {"results": 0}

    def queue_lengths(queues: list[str]) -> dict[str, int]:
        if not lengths:
            raise broker.BrokerUnavailable("down")
        return {name: lengths.get(name, 0) for name in queues}

    monkeypatch.setattr(broker, "queue_lengths", queue_lengths)
    monkeypatch.setattr(broker, "give_orders", lambda orders: None)
    return lengths


@pytest.fixture
def now() -> datetime:
    return timezone.now()


def page() -> str:
    response = Client().get(reverse("status"))
    assert response.status_code == 200
    return response.content.decode()


def canary(worker: Worker, at: datetime, **changes: Any) -> Canary:
    fields = {"passed": True, "code": "correct", "speedup": 1.0, "speedup_low": 0.9, "speedup_high": 1.1}
    return Canary.objects.create(
        worker=worker,
        problem_number=13,
        sent_at=at,
        finished_at=at,
        **{**fields, "reference_seconds": 0.004, **changes},
    )


def test_a_site_that_is_well_says_so(now: datetime) -> None:
    WorkerFactory(
        name="gpu-1",
        last_seen_at=now,
        versions={"torch": "2.13.0", "cuda": "12.8", "code": "abc123"},
        capabilities={"devices": ["NVIDIA H100"] * 4, "topology": "NV18 between 4 GPUs"},
    )
    shown = page()
    for words in ("Nothing unusual.", "gpu-1", "4 × NVIDIA H100", "NV18 between 4 GPUs", "torch 2.13.0, CUDA 12.8"):
        assert words in shown


def test_files_that_wait_too_long_are_an_alert(now: datetime, settings: Any) -> None:
    worker = WorkerFactory(last_seen_at=now)
    attempt = AttemptFactory(evaluation__target=worker.target, created_at=now - timedelta(minutes=59))
    assert "Nothing unusual." in page()
    Attempt.objects.filter(pk=attempt.pk).update(created_at=now - timedelta(minutes=61))
    shown = page()
    assert "1 file waits, the oldest for 61 min; more than 60 min is unusual." in shown
    assert "! slow" in shown
    worker.delete()
    assert "no worker takes work, and 1 file waits" in page()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"state": WorkerState.QUARANTINED, "state_reason": "The fan is loud."}, "takes no work. The fan is loud."),
        ({"state": WorkerState.DRAINED, "state_reason": "Moves house."}, "takes no work. Moves house."),
        ({"refusal": "It has suite 0000."}, "takes no work. It has suite 0000."),
    ],
)
def test_a_worker_that_takes_no_work_says_why(now: datetime, fields: dict[str, Any], words: str) -> None:
    WorkerFactory(last_seen_at=now, **fields)
    assert words in page()
    Worker.objects.update(last_seen_at=now - timedelta(hours=1))
    assert "Nothing unusual." in page()  # one that is switched off alarms nobody, unless files wait


def test_a_broker_that_is_gone_is_an_alert(waiting: dict[str, int]) -> None:
    waiting.clear()
    assert "The broker does not answer" in page()


def test_results_that_pile_up_are_an_alert(waiting: dict[str, int]) -> None:
    waiting["results"] = 5_000
    assert "5,000 messages of workers wait to be recorded" in page()


def test_canaries_are_drawn_and_told(now: datetime) -> None:
    worker = WorkerFactory(name="cpu-1", last_seen_at=now)
    canary(worker, now - timedelta(hours=2), passed=False, code="wrong_values", reason="the verdict is wrong_values")
    canary(worker, now - timedelta(hours=1), speedup=1.07)
    shown = page()
    assert "Ratios of the last 2 canaries, the last 1.07×; allowed are 0.6 to 1.6" in shown
    assert shown.count('<circle class="passed"') == 1
    assert shown.count('<circle class="failed"') == 1
    assert "the verdict is wrong_values" in shown
    assert "wrong values" in shown


def test_a_host_that_becomes_slower_drifts_although_its_ratio_stays(now: datetime) -> None:
    worker = WorkerFactory(name="cpu-1", last_seen_at=now)
    for hours in range(5, 0, -1):
        canary(worker, now - timedelta(hours=hours), reference_seconds=0.004 + hours * 1e-5)
    assert "Nothing unusual." in page()
    canary(worker, now, reference_seconds=0.006)
    shown = page()
    assert "drifts: its reference took +49 % against its own median" in shown
    assert "reference +49 %" in shown


def test_too_few_canaries_show_no_drift(now: datetime) -> None:
    worker = WorkerFactory(last_seen_at=now)
    for hours in range(3):
        canary(worker, now - timedelta(hours=hours), reference_seconds=0.004 * (hours + 1))
    [line] = reading.read(now).workers
    assert line.drift is None


def test_what_happened_to_workers_lately_stands_there_in_sentences(now: datetime) -> None:
    worker = WorkerFactory(name="gpu-1", last_seen_at=now)
    maintainer = UserFactory(username="mona", is_staff=True)
    workers.set_state(worker, WorkerState.QUARANTINED, maintainer, reason="ECC errors on GPU 2")
    workers.set_state(worker, WorkerState.ACTIVE, maintainer, reason="GPU 2 was replaced")
    shown = page()
    assert "Worker gpu-1 was quarantined: ECC errors on GPU 2" in shown
    assert "Worker gpu-1 takes work again: GPU 2 was replaced" in shown
    assert "mona" not in shown


def test_workers_that_are_long_gone_and_unknown_targets_are_not_listed(now: datetime) -> None:
    WorkerFactory(name="museum", last_seen_at=now - timedelta(days=15))
    TargetFactory(name="closed-one", is_open=False)
    shown = page()
    assert "museum" not in shown
    assert "closed-one" not in shown


def test_the_page_asks_the_same_number_of_queries_however_much_there_is(now: datetime) -> None:
    def queries() -> list[str]:
        with CaptureQueriesContext(connection) as captured:
            page()
        return [query["sql"] for query in captured]

    worker = WorkerFactory(last_seen_at=now)
    canary(worker, now)
    few = queries()
    for number in range(5):
        other = WorkerFactory(last_seen_at=now, target=TargetFactory(name=f"other-{number}"))
        canary(other, now)
        AttemptFactory(evaluation__target=other.target)
        AttemptFactory(evaluation__target=other.target, state=AttemptState.RECORDED, finished_at=now)
    many = queries()
    assert len(few) == len(many)
    attempts = [sql for sql in many if 'FROM "leaderboard_attempt"' in sql]
    assert len(attempts) == 2  # what is not over, and what ended within a day: both by an index
    assert all("state" in sql or "finished_at" in sql for sql in attempts)


def test_a_file_that_no_host_can_serve_yet_says_why_it_waits(site: Site, now: datetime) -> None:
    evaluation = EvaluationFactory(run=site.run, suite=site.suite, target__name="other")
    reason = "Host a has version 0123 of problem 1, the file is to be judged by version 4567."
    AttemptFactory(evaluation=evaluation, submission=site.submission, note=reason, wait_until=now)
    address = reverse("submission", args=[site.submission.public_id])
    assert reason in Client().get(address, {"on": evaluation.public_id}).content.decode()


# In the admin


@pytest.fixture
def maintainer() -> Client:
    client = Client()
    client.force_login(
        UserFactory(is_staff=True, is_superuser=True), backend="django.contrib.auth.backends.ModelBackend"
    )
    return client


def act(client: Client, worker: Worker, action: str, reason: str = "because") -> None:
    address = reverse("admin:leaderboard_worker_changelist")
    response = client.post(address, {"action": action, "_selected_action": [worker.pk], "reason": reason})
    assert response.status_code == 302
    worker.refresh_from_db()


def test_a_maintainer_drains_quarantines_and_activates(maintainer: Client, now: datetime) -> None:
    worker = WorkerFactory(last_seen_at=now)
    for action, state in (
        ("drain", WorkerState.DRAINED),
        ("quarantine", WorkerState.QUARANTINED),
        ("activate", WorkerState.ACTIVE),
    ):
        act(maintainer, worker, action, reason=f"to {action}")
        assert (worker.state, worker.state_reason) == (state, f"to {action}")
    act(maintainer, worker, "drain", reason="")
    assert worker.state == WorkerState.ACTIVE, "without a reason nothing is done"


def test_the_list_of_workers_tells_what_matters_and_no_key(maintainer: Client, now: datetime) -> None:
    worker = WorkerFactory(
        last_seen_at=now, host="rack-7", refusal="It has suite 0000.", versions={"torch": "2.13.0", "code": "abc"}
    )
    canary(worker, now, speedup=1.02)
    shown = maintainer.get(reverse("admin:leaderboard_worker_changelist")).content.decode()
    for words in ("rack-7", "It has suite 0000.", "2.13.0", "passed, 1.02×"):
        assert words in shown
    detail = maintainer.get(reverse("admin:leaderboard_worker_change", args=[worker.pk])).content.decode()
    assert worker.key not in shown + detail
    for name in ("canary", "tally"):
        assert maintainer.get(reverse(f"admin:leaderboard_{name}_changelist")).status_code == 200
