"""Which worker may work, what each is told, and what its host's canary does to it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command

from evaluator.contract import (
    PROTOCOL_VERSION,
    Claim,
    Code,
    Decline,
    Hello,
    Interval,
    Job,
    Orders,
    Report,
    suite_digest,
)
from leaderboard import canaries, lifecycle, recording, turns, workers
from leaderboard.models import (
    Attempt,
    AttemptState,
    AuditEvent,
    Canary,
    EvaluationScore,
    QuotaEntry,
    Verdict,
    Worker,
    WorkerState,
)
from problems.models import Suite
from tests.factories import (
    AttemptFactory,
    ProblemVersionFactory,
    SuiteFactory,
    TargetFactory,
    UserFactory,
    WorkerFactory,
)
from tests.leaderboard.conftest import FakeBroker
from tests.reports import TIMING, report_for

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)


@pytest.fixture
def suite() -> Suite:
    """The current suite, with the problem of the canaries in it."""
    suite = SuiteFactory(size=0, is_current=True)
    suite.problem_versions.add(ProblemVersionFactory(problem__number=canaries.specs()["cpu-gloo"].problem))
    return suite


@pytest.fixture
def worker(suite: Suite) -> Worker:
    return WorkerFactory(last_seen_at=NOW, host="gpu-host")


def hello(**changes: Any) -> Hello:
    fields = {"target": "cpu-gloo", "protocol_version": PROTOCOL_VERSION, "suite_digest": workers.current_digest()}
    return Hello(**{**fields, **changes})


def answer(canary: Canary, **changes: Any) -> Report:
    """What a healthy host reports of its canary."""
    fields: dict[str, Any] = {
        "attempt_id": canary.pk,
        "problem_id": canary.problem_number,
        "problem_digest": "",
        "target": canary.worker.target.name,
        "world_size": 4,
        "precision": "fp32",
        "code": Code.CORRECT,
        "decision": "tie",
        "speedup": Interval(estimate=1.0, low=0.97, high=1.03),
        "timing": TIMING,
        "message": "Correct.",
        "phases": ({"phase": "static", "status": "passed"},),
        "seconds": 20,
    }
    return Report(**{**fields, **changes})


def failing(canary: Canary) -> Report:
    return answer(canary, code=Code.WRONG_VALUES, decision="none", speedup=None, timing=None)


def state_of(worker: Worker) -> str:
    worker.refresh_from_db()
    return worker.state


def sent(messages: FakeBroker) -> list[Job]:
    return [job for queue, job in messages.jobs if queue.startswith("host.")]


# Orders


def test_a_worker_of_the_same_release_is_told_to_work(
    worker: Worker, messages: FakeBroker, django_capture_on_commit_callbacks: Any
) -> None:
    workers.note_hello(worker, hello(devices=("H100",) * 4, topology="NV18 between 4 GPUs", versions={"torch": "2.13"}))
    orders = messages.orders[worker.name]
    assert (orders.takes_work, orders.suite_digest) == (True, workers.current_digest())
    worker.refresh_from_db()
    assert (worker.refusal, worker.versions, worker.capabilities["devices"]) == ("", {"torch": "2.13"}, ["H100"] * 4)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"suite_digest": "0" * 64}, "It has suite 000000000000, the site asks for"),
        ({"suite_digest": ""}, "It has suite unknown"),
        ({"protocol_version": "0.9"}, "It has protocol 0.9, the site asks for 1.0"),
        ({"refuses": "The driver does not answer."}, "The driver does not answer."),
    ],
)
def test_another_version_takes_no_work_and_both_sides_say_why(
    worker: Worker, messages: FakeBroker, changes: dict[str, str], words: str
) -> None:
    other = hello(**changes)
    workers.note_hello(worker, other)
    worker.refresh_from_db()
    assert words in worker.refusal
    assert messages.orders[worker.name].refusal(other) == worker.refusal  # what the worker itself concludes
    assert not Worker.objects.online(at=NOW).exists()
    assert AuditEvent.objects.get(action="refuse worker").reason == worker.refusal
    workers.note_hello(worker, other)
    assert AuditEvent.objects.filter(action="refuse worker").count() == 1
    workers.note_hello(worker, hello())
    worker.refresh_from_db()
    assert worker.refusal == ""
    assert Worker.objects.online(at=NOW).exists()


def test_a_hello_of_another_contract_is_refused_and_seen(worker: Worker, messages: FakeBroker) -> None:
    from tests.leaderboard.test_recording import seal

    foreign = hello().model_dump_json().replace('"contract_version":1', '"contract_version":2')
    with pytest.raises(recording.Refused, match="malformed"):
        recording.record_message(seal(worker, "hello", foreign))
    worker.refresh_from_db()
    assert "This release does not understand the worker" in worker.refusal
    assert not worker.takes_work


def test_a_new_suite_stops_workers_that_have_the_old_one(
    worker: Worker, messages: FakeBroker, suite: Suite, django_capture_on_commit_callbacks: Any
) -> None:
    old = hello()
    workers.note_hello(worker, old)
    assert messages.orders[worker.name].refusal(old) == ""
    call_command("load_suite", stdout=StringIO())
    assert "the site asks for" in messages.orders[worker.name].refusal(old)


def test_the_digest_of_a_suite_depends_on_every_version_and_not_on_their_order() -> None:
    assert suite_digest([(1, "a"), (2, "b")]) == suite_digest([(2, "b"), (1, "a")])
    assert suite_digest([(1, "a"), (2, "b")]) != suite_digest([(1, "a"), (2, "c")])
    assert suite_digest([]) == ""


@pytest.mark.parametrize("state", [WorkerState.DRAINED, WorkerState.QUARANTINED])
def test_a_maintainer_takes_a_worker_out_and_puts_it_back(
    worker: Worker, messages: FakeBroker, django_capture_on_commit_callbacks: Any, state: WorkerState
) -> None:
    maintainer = UserFactory(is_staff=True)
    with django_capture_on_commit_callbacks(execute=True):
        assert workers.set_state(worker, state, maintainer, reason="fan is loud")
    orders = messages.orders[worker.name]
    assert not orders.takes_work
    assert "fan is loud" in orders.reason
    assert not Worker.objects.online(at=NOW).exists()
    event = AuditEvent.objects.get(action=f"set worker {state}")
    assert (event.actor, event.reason) == (maintainer, "fan is loud")
    with django_capture_on_commit_callbacks(execute=True):
        assert workers.set_state(worker, WorkerState.ACTIVE, maintainer, reason="new fan")
        assert not workers.set_state(worker, WorkerState.ACTIVE, maintainer, reason="again")
    assert messages.orders[worker.name].takes_work


def test_orders_that_did_not_arrive_come_with_the_next_hello(
    worker: Worker, messages: FakeBroker, django_capture_on_commit_callbacks: Any
) -> None:
    messages.up = False
    with django_capture_on_commit_callbacks(execute=True):
        workers.set_state(worker, WorkerState.DRAINED, None, reason="dusty")
    assert state_of(worker) == WorkerState.DRAINED
    messages.up = True
    workers.note_hello(worker, hello())
    assert not messages.orders[worker.name].takes_work


@pytest.mark.parametrize(
    ("state", "may"),
    [
        (WorkerState.ACTIVE, True),
        (WorkerState.DRAINED, True),  # it had taken the message before it was told
        (WorkerState.QUARANTINED, False),
        (WorkerState.FAILING, False),
    ],
)
def test_what_a_quarantined_worker_begins_does_not_count(worker: Worker, state: WorkerState, may: bool) -> None:
    attempt = AttemptFactory(evaluation__target=worker.target)
    workers.set_state(worker, state, None, reason="looks odd")
    claim = Claim(attempt_id=attempt.pk, attempt_number=1)
    if may:
        lifecycle.lease_attempt(claim, worker)
    else:
        with pytest.raises(lifecycle.Stale, match="may begin nothing: looks odd"):
            lifecycle.lease_attempt(claim, worker)
        with pytest.raises(lifecycle.Stale, match="may begin nothing"):
            lifecycle.record_report(report_for(attempt), worker)
    attempt.refresh_from_db()
    assert (attempt.state == AttemptState.LEASED) is may


def test_what_a_worker_holds_it_may_finish(worker: Worker) -> None:
    attempt = AttemptFactory(evaluation__target=worker.target, leased=True, worker=worker)
    workers.set_state(worker, WorkerState.QUARANTINED, None, reason="looks odd")
    worker.refresh_from_db()
    assert lifecycle.record_report(report_for(attempt), worker) is not None


# Attempts that a host cannot serve


def test_a_declined_attempt_waits_with_its_reason_and_costs_nothing(worker: Worker) -> None:
    attempt = AttemptFactory(evaluation__target=worker.target, sent_at=NOW)
    decline = Decline(attempt_id=attempt.pk, reason="Host a has version 1 of problem 13.")
    lifecycle.decline_attempt(decline, worker, at=NOW)
    attempt.refresh_from_db()
    assert (attempt.state, attempt.number, attempt.note) == ("queued", 1, "Host a has version 1 of problem 13.")
    soon, later = NOW + timedelta(seconds=599), NOW + timedelta(seconds=601)
    assert turns.choose(worker.target_id, at=soon) == []  # it does not go round and round between site and host
    assert turns.choose(worker.target_id, at=later) == [attempt.pk]
    lifecycle.decline_attempt(decline, worker, at=later)
    assert AuditEvent.objects.filter(action="decline attempt").count() == 1


def test_others_overtake_a_declined_attempt(worker: Worker) -> None:
    first = AttemptFactory(evaluation__target=worker.target, sent_at=NOW)
    second = AttemptFactory(evaluation__target=worker.target, turn=5)
    lifecycle.decline_attempt(Decline(attempt_id=first.pk, reason="not here"), worker, at=NOW)
    assert turns.choose(worker.target_id, at=NOW) == [second.pk]


def test_nobody_declines_what_another_holds(worker: Worker) -> None:
    attempt = AttemptFactory(evaluation__target=worker.target, leased=True)
    with pytest.raises(lifecycle.Stale, match="is held by worker"):
        lifecycle.decline_attempt(Decline(attempt_id=attempt.pk, reason="no"), worker)
    foreign = AttemptFactory(evaluation__target=TargetFactory(name="h100x8"))
    with pytest.raises(lifecycle.Stale, match="another target"):
        lifecycle.decline_attempt(Decline(attempt_id=foreign.pk, reason="no"), worker)


# Canaries


@pytest.fixture
def canary(worker: Worker, django_capture_on_commit_callbacks: Any) -> Canary:
    with django_capture_on_commit_callbacks(execute=True):
        assert canaries.visit(at=NOW) == 1
    return worker.canaries.get()


def test_every_present_host_gets_its_canary_once_an_hour(
    worker: Worker, canary: Canary, messages: FakeBroker, django_capture_on_commit_callbacks: Any
) -> None:
    [job] = sent(messages)
    spec = canaries.specs()["cpu-gloo"]
    assert (job.canary, job.attempt_id, job.problem_id, job.source) == (True, canary.pk, spec.problem, spec.source)
    assert messages.jobs[0][0] == f"host.{worker.name}"
    canaries.record(answer(canary), worker, at=NOW)
    Worker.objects.update(last_seen_at=NOW + timedelta(minutes=60))
    WorkerFactory(last_seen_at=NOW, name="gone")
    WorkerFactory(last_seen_at=NOW + timedelta(minutes=60), state=WorkerState.DRAINED, name="drained")
    WorkerFactory(last_seen_at=NOW + timedelta(minutes=60), refusal="another suite", name="old")
    assert canaries.visit(at=NOW + timedelta(minutes=59)) == 0
    assert canaries.visit(at=NOW + timedelta(minutes=60)) == 1
    assert canaries.visit(at=NOW + timedelta(minutes=61)) == 0  # one is pending


def test_a_new_host_with_work_waiting_works_first(worker: Worker) -> None:
    AttemptFactory(evaluation__target=worker.target)
    Worker.objects.update(registered_at=NOW - timedelta(minutes=1))
    assert canaries.visit(at=NOW) == 0
    Worker.objects.update(registered_at=NOW - timedelta(hours=2))
    assert canaries.visit(at=NOW) == 1


def test_canaries_can_be_switched_off(worker: Worker, settings: Any) -> None:
    settings.CANARY_SECONDS = 0
    assert canaries.visit(at=NOW) == 0
    settings.CANARY_SECONDS, settings.ONLY_DEMONSTRATION = 3600, True
    assert canaries.visit(at=NOW) == 0


def test_a_passed_canary_leaves_a_figure_and_nothing_else(worker: Worker, canary: Canary) -> None:
    canaries.record(answer(canary), worker, at=NOW)
    canary.refresh_from_db()
    assert (canary.passed, canary.speedup, canary.reference_seconds) == (True, 1.0, TIMING.reference_seconds)
    assert state_of(worker) == WorkerState.ACTIVE
    for untouched in (Attempt, Verdict, QuotaEntry, EvaluationScore):
        assert not untouched.objects.exists()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"code": Code.WRONG_VALUES, "decision": "none", "speedup": None, "timing": None}, "verdict is wrong_values"),
        (
            {"code": Code.HARNESS_FAILURE, "decision": "none", "speedup": None, "message": "No GPU."},
            "harness_failure, it must be correct. No GPU.",
        ),
        (
            {"speedup": Interval(estimate=2.0, low=1.7, high=2.4)},
            "ratio is 2.000 (1.700 to 2.400), it must be 0.6 to 1.6",
        ),
        ({"speedup": Interval(estimate=0.4, low=0.3, high=0.5)}, "ratio is 0.400"),
        ({"speedup": Interval(estimate=1.7, low=1.5, high=1.9)}, ""),  # noisy: the interval reaches into the band
        ({"speedup": None, "timing": None, "decision": "none"}, "it was not timed"),
    ],
)
def test_a_failed_canary_takes_the_host_out_of_work(
    worker: Worker,
    canary: Canary,
    messages: FakeBroker,
    django_capture_on_commit_callbacks: Any,
    changes: dict[str, Any],
    words: str,
) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        canaries.record(answer(canary, **changes), worker, at=NOW)
    canary.refresh_from_db()
    assert canary.passed is (words == "")
    if words:
        assert words in canary.reason
        assert state_of(worker) == WorkerState.FAILING
        assert words in worker.state_reason
        assert not messages.orders[worker.name].takes_work
        assert len(sent(messages)) == 2  # a second one at once: it may have been chance
    else:
        assert state_of(worker) == WorkerState.ACTIVE


def test_two_passes_in_a_row_bring_a_host_back(
    worker: Worker, canary: Canary, messages: FakeBroker, django_capture_on_commit_callbacks: Any
) -> None:
    def next_answer(minutes: int, passes: bool) -> str:
        pending = worker.canaries.pending().get()
        with django_capture_on_commit_callbacks(execute=True):
            canaries.record(
                answer(pending) if passes else failing(pending), worker, at=NOW + timedelta(minutes=minutes)
            )
        return state_of(worker)

    assert next_answer(0, passes=False) == WorkerState.FAILING
    assert next_answer(1, passes=True) == WorkerState.FAILING
    assert next_answer(2, passes=False) == WorkerState.FAILING
    assert next_answer(3, passes=True) == WorkerState.FAILING
    assert next_answer(4, passes=True) == WorkerState.ACTIVE
    assert messages.orders[worker.name].takes_work
    assert worker.canaries.pending().count() == 0


def test_a_host_that_keeps_failing_is_asked_every_ten_minutes(worker: Worker, canary: Canary) -> None:
    canaries.record(failing(canary), worker, at=NOW)
    canaries.record(failing(worker.canaries.pending().get()), worker, at=NOW + timedelta(minutes=1))
    assert not worker.canaries.pending().exists()
    Worker.objects.update(last_seen_at=NOW + timedelta(minutes=10))
    assert canaries.visit(at=NOW + timedelta(minutes=9)) == 0
    assert canaries.visit(at=NOW + timedelta(minutes=10)) == 1


def test_canaries_never_lift_what_a_maintainer_has_ordered(worker: Worker, canary: Canary) -> None:
    workers.set_state(worker, WorkerState.QUARANTINED, UserFactory(), reason="under suspicion")
    canaries.record(answer(canary), worker, at=NOW)
    Worker.objects.update(last_seen_at=NOW + timedelta(hours=1))
    canaries.visit(at=NOW + timedelta(hours=1))
    canaries.record(answer(worker.canaries.pending().get()), worker, at=NOW + timedelta(hours=1))
    assert state_of(worker) == WorkerState.QUARANTINED


def test_an_answer_counts_once_and_only_from_the_host_that_was_asked(worker: Worker, canary: Canary) -> None:
    with pytest.raises(lifecycle.Stale, match="has no canary"):
        canaries.record(answer(canary), WorkerFactory(), at=NOW)
    canaries.record(answer(canary), worker, at=NOW)
    with pytest.raises(lifecycle.Stale, match="has no canary"):
        canaries.record(failing(canary), worker, at=NOW)
    assert state_of(worker) == WorkerState.ACTIVE


def test_a_canary_that_nobody_answers_is_given_up_and_blames_nobody(worker: Worker, canary: Canary) -> None:
    canaries.visit(at=NOW + canaries.PATIENCE + timedelta(seconds=1))
    canary.refresh_from_db()
    assert (canary.passed, canary.finished_at is not None) == (None, True)
    assert "no answer within" in canary.reason
    assert state_of(worker) == WorkerState.ACTIVE


def test_a_failure_of_ours_is_followed_by_a_canary_of_the_same_host(worker: Worker) -> None:
    from tests.leaderboard.test_recording import seal

    attempts = [AttemptFactory(evaluation__target=worker.target) for _ in range(2)]
    for attempt in attempts:
        report = report_for(attempt, code="harness_failure", message="The driver is gone.")
        recording.record_message(seal(worker, "report", report))
    assert [c.reason for c in worker.canaries.all()] == [f"attempt {attempts[0].pk} ended as a failure of ours"]


def test_a_broker_that_is_gone_leaves_no_canary_behind(
    worker: Worker, messages: FakeBroker, django_capture_on_commit_callbacks: Any
) -> None:
    messages.up = False
    with django_capture_on_commit_callbacks(execute=True):
        canaries.visit(at=NOW)
    assert not Canary.objects.exists()


def test_every_target_has_its_canary() -> None:
    import json

    from django.conf import settings

    names = {target["name"] for target in json.loads(settings.TARGETS_FILE.read_text())["targets"]}
    assert set(canaries.specs()) == names
    for spec in canaries.specs().values():
        compile(spec.source, spec.file, "exec")


def test_orders_travel_as_they_are_written() -> None:
    orders = Orders(takes_work=False, reason="dusty", suite_digest="a" * 64)
    assert Orders.model_validate_json(orders.model_dump_json()) == orders
