"""What a GPU host says is believed only if it is signed, well-formed, of the right size, and about what was asked."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import OperationalError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.contract import MAX_MESSAGE_BYTES, Claim, Hello, Isolation, RankResult, Signed
from leaderboard import recording, results_app
from leaderboard.models import Artifact, Attempt, AttemptState, AuditEvent, Verdict, Worker
from tests.factories import AttemptFactory, TargetFactory, WorkerFactory
from tests.reports import report_for

pytestmark = pytest.mark.django_db


@pytest.fixture
def worker() -> Worker:
    return WorkerFactory()


@pytest.fixture
def attempt() -> Attempt:
    return AttemptFactory()


def seal(worker: Worker, kind: Any, body: Any, *, key: str | None = None, name: str | None = None) -> str:
    text = body if isinstance(body, str) else body.model_dump_json()
    return Signed.seal(
        worker=name or worker.name, kind=kind, body=text, key=bytes.fromhex(key or worker.key)
    ).model_dump_json()


def test_signed_report_is_recorded(worker: Worker, attempt: Attempt) -> None:
    recording.record_message(seal(worker, "report", report_for(attempt)))
    assert Verdict.objects.get().attempt == attempt
    worker.refresh_from_db()
    assert worker.last_seen_at is not None


def test_hello_says_which_versions_a_worker_has(worker: Worker) -> None:
    recording.record_message(seal(worker, "hello", Hello(target="cpu-gloo", versions={"torch": "2.13.0"})))
    worker.refresh_from_db()
    assert worker.versions == {"torch": "2.13.0"}
    with pytest.raises(recording.Refused, match="registered for cpu-gloo, but serves h100x8"):
        recording.record_message(seal(worker, "hello", Hello(target="h100x8")))


def test_forged_messages_are_refused(worker: Worker, attempt: Attempt) -> None:
    other = WorkerFactory()
    report = report_for(attempt)
    forged = {
        "signature is not that": seal(worker, "report", report, key=other.key),
        "there is no worker": seal(worker, "report", report, name="nobody"),
    }
    for reason, message in forged.items():
        with pytest.raises(recording.Refused, match=reason):
            recording.record_message(message)
    genuine = json.loads(seal(worker, "report", report))
    for field, value in {
        "kind": "progress",
        "worker": other.name,
        "body": genuine["body"].replace("2.0", "9.0"),
    }.items():
        with pytest.raises(recording.Refused, match="signature is not that"):
            recording.record_message(json.dumps({**genuine, field: value}))
    assert not Verdict.objects.exists()


def test_refusal_is_audited_with_the_worker_that_it_names(worker: Worker, attempt: Attempt) -> None:
    results_app.record(seal(worker, "report", report_for(attempt), key="ab" * 32))
    event = AuditEvent.objects.get(action="refuse message")
    assert (event.subject_type, event.reason) == ("worker", f"the signature is not that of worker {worker.name}")


def test_oversized_messages_are_refused_unread(worker: Worker) -> None:
    for message, words in [
        ("x" * (recording.ENVELOPE_BYTES + 1), "at most 8388608 are taken"),
        (seal(worker, "report", "é" * (MAX_MESSAGE_BYTES // 2 + 1)), "at most 4194304 are taken"),
    ]:
        with pytest.raises(recording.Refused, match=words):
            recording.record_message(message)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "null",
        "[]",
        "[" * 100_000,
        '{"worker": "x"}',
        '{"worker": "\\u0000"}',
        '{"worker": "\\ud800"}',
        7,
        None,
    ],
)
def test_nonsense_never_raises(message: Any) -> None:
    results_app.record(message)


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=st.text(max_size=200) | st.recursive(st.none() | st.text(), st.lists, max_leaves=5).map(json.dumps))
def test_no_signed_body_raises(worker: Worker, body: str) -> None:
    for kind in recording.MODELS:
        results_app.record(seal(worker, kind, body))


def test_unknown_field_is_an_error_not_ignored(worker: Worker, attempt: Attempt) -> None:
    body = {**json.loads(report_for(attempt).model_dump_json()), "bonus": 1}
    with pytest.raises(recording.Refused, match="malformed in 1 places, first bonus"):
        recording.record_message(seal(worker, "report", json.dumps(body)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"problem_id": 9_999}, "about problem 9999"),
        ({"target": "h100x8"}, "about target h100x8"),
        ({"world_size": 2}, "about world size 2"),
        ({"precision": "bf16"}, "about precision bf16"),
        ({"attempt_id": uuid4()}, "there is no attempt"),
    ],
)
def test_report_must_be_about_what_was_asked(
    worker: Worker, attempt: Attempt, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(recording.Refused, match=words):
        recording.record_message(seal(worker, "report", report_for(attempt, **changes)))


def test_report_of_another_problem_version_is_refused(worker: Worker) -> None:
    attempt = AttemptFactory()
    problem = attempt.evaluation.suite.problem_versions.first().problem
    attempt.submission.problem = problem
    attempt.submission.save()
    with pytest.raises(recording.Refused, match="about problem version 0000"):
        recording.record_message(seal(worker, "report", report_for(attempt, problem_digest="0" * 64)))
    failure = report_for(attempt, problem_digest="0" * 64, code="harness_failure", message="This host has version 0.")
    recording.record_message(seal(worker, "report", failure))  # is heard, or nobody would know why nothing works
    assert Attempt.objects.active().get().number == 2


def test_ranked_target_takes_no_report_of_an_unsandboxed_run() -> None:
    target = TargetFactory(name="h100x4", is_ranked=True)
    attempt = AttemptFactory(evaluation__target=target)
    bare = report_for(attempt, isolation=Isolation(mode="none", network=False, seccomp=False, cgroup=False))
    with pytest.raises(recording.Refused, match="h100x4 takes no such report"):
        recording.record_message(seal(WorkerFactory(target=target), "report", bare))


def test_what_no_database_stores_is_replaced(worker: Worker, attempt: Attempt) -> None:
    rank = RankResult(rank=0, reached="trials", log="before\0after")
    recording.record_message(seal(worker, "report", report_for(attempt, message="zero\0byte", ranks=(rank,))))
    assert Verdict.objects.get().message == "zero\ufffdbyte"
    assert json.loads(Artifact.objects.get().content)["ranks"][0]["log"] == "before\ufffdafter"


def test_database_that_is_away_is_asked_again(
    worker: Worker, attempt: Attempt, monkeypatch: pytest.MonkeyPatch
) -> None:
    record, pauses = recording.record_message, []
    failures = iter([OperationalError("database is locked"), OperationalError("gone")])

    def flaky(message: str) -> None:
        for failure in failures:
            raise failure
        record(message)

    monkeypatch.setattr(recording, "record_message", flaky)
    monkeypatch.setattr(results_app, "close_old_connections", lambda: None)
    monkeypatch.setattr(results_app, "_sleep_unless_stopping", pauses.append)
    results_app.record(seal(worker, "report", report_for(attempt)))
    assert pauses == [0.5, 1.0]
    assert Verdict.objects.count() == 1


def test_stale_claim_is_refused_and_audited(worker: Worker, attempt: Attempt) -> None:
    Attempt.objects.filter(pk=attempt.pk).update(state=AttemptState.LOST, reason="worker gave no sign of life")
    results_app.record(seal(worker, "claim", Claim(attempt_id=attempt.pk, attempt_number=1)))
    assert "is stale" in AuditEvent.objects.get(action="refuse message").reason


def test_the_results_app_can_do_one_thing_only() -> None:
    assert list(results_app.app.tasks) == ["record"]
    assert results_app.app.conf.accept_content == ["json"]
    assert results_app.app.conf.task_acks_late
