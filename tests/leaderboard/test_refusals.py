"""Forged, replayed, oversized and stray messages, through the results app's own task: a trace in the log, no effect."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import structlog
from django.core import serializers

from evaluator.contract import MAX_MESSAGE_BYTES, Claim, Code, Decline, Progress, Signed
from leaderboard import canaries, lifecycle, recording, results_app
from leaderboard.models import (
    Artifact,
    Attempt,
    AuditEvent,
    Canary,
    Evaluation,
    EvaluationScore,
    QuotaEntry,
    Review,
    Verdict,
    Worker,
)
from tests.factories import AttemptFactory, TargetFactory, WorkerFactory
from tests.reports import report_for

pytestmark = pytest.mark.django_db


@dataclass
class Scene:
    """An attempt that ``holder`` holds, a colleague of the same target, a stranger of another, a canary of each."""

    attempt: Attempt
    holder: Worker
    colleague: Worker
    stranger: Worker
    canary: Canary

    def message(self, kind: str = "report", body: Any = None, *, by: Worker | None = None, key: str = "") -> str:
        worker = by or self.holder
        text = body if isinstance(body, str) else (body or report_for(self.attempt)).model_dump_json()
        signed = Signed.seal(worker=worker.name, kind=kind, body=text, key=bytes.fromhex(key or worker.key))  # type: ignore[arg-type]
        return signed.model_dump_json()

    def changed(self, **fields: Any) -> str:
        """A genuine message, changed on the way."""
        return json.dumps({**json.loads(self.message()), **fields})


@pytest.fixture
def scene() -> Scene:
    attempt = AttemptFactory(leased=True)
    target = attempt.evaluation.target
    holder, colleague = attempt.worker, WorkerFactory(target=target)
    canary = Canary.objects.create(worker=holder, problem_number=canaries.specs()[target.name].problem)
    return Scene(attempt, holder, colleague, WorkerFactory(target=TargetFactory(name="h100x8")), canary)


def state() -> str:
    """Everything that a message could have an effect on."""
    models = (Attempt, Evaluation, Verdict, Artifact, QuotaEntry, EvaluationScore, Review, Canary)
    return "".join(serializers.serialize("json", model.objects.order_by("pk")) for model in models) + str(
        list(Worker.objects.order_by("pk").values("pk", "state", "refusal", "versions", "capabilities"))
    )


ABOUT_CANARY = {"speedup": None, "timing": None, "decision": "none", "code": Code.WRONG_VALUES, "bound": None}

MESSAGES: dict[str, tuple[Callable[[Scene], str], str]] = {
    "forged: another key": (lambda s: s.message(key="ab" * 32), "signature is not that"),
    "forged: a colleague's key under the holder's name": (
        lambda s: s.message(key=s.colleague.key),
        "signature is not that",
    ),
    "forged: the body was changed": (
        lambda s: s.changed(body=report_for(s.attempt, message="Better.").model_dump_json()),
        "signature is not that",
    ),
    "forged: the worker was changed": (lambda s: s.changed(worker=s.colleague.name), "signature is not that"),
    "forged: the kind was changed": (lambda s: s.changed(kind="canary"), "signature is not that"),
    "forged: nobody": (lambda s: s.changed(worker="nobody"), "there is no worker 'nobody'"),
    "forged: an empty signature": (lambda s: s.changed(mac="0" * 64), "signature is not that"),
    "wrong worker of the same target": (lambda s: s.message(by=s.colleague), "is held by worker"),
    "worker of another target": (lambda s: s.message(by=s.stranger), "evaluates for another target"),
    "claim of a colleague": (
        lambda s: s.message("claim", Claim(attempt_id=s.attempt.pk, attempt_number=1), by=s.colleague),
        "is held by worker",
    ),
    "claim of another target's worker": (
        lambda s: s.message("claim", Claim(attempt_id=s.attempt.pk, attempt_number=1), by=s.stranger),
        "another target",
    ),
    "claim of another number": (
        lambda s: s.message("claim", Claim(attempt_id=s.attempt.pk, attempt_number=2)),
        "is number 1, the claim says 2",
    ),
    "sign of life of a colleague": (
        lambda s: s.message("progress", Progress(attempt_id=s.attempt.pk, sequence=9, phase="trials"), by=s.colleague),
        "is held by worker",
    ),
    "decline by a colleague": (
        lambda s: s.message("decline", Decline(attempt_id=s.attempt.pk, reason="no"), by=s.colleague),
        "is held by worker",
    ),
    "an attempt that never was": (
        lambda s: s.message(body=report_for(s.attempt, attempt_id=uuid4())),
        "there is no attempt",
    ),
    "about another problem": (lambda s: s.message(body=report_for(s.attempt, problem_id=9_999)), "about problem 9999"),
    "about another target": (lambda s: s.message(body=report_for(s.attempt, target="h100x8")), "about target h100x8"),
    "about fewer ranks": (lambda s: s.message(body=report_for(s.attempt, world_size=1)), "about world size 1"),
    "about another precision": (lambda s: s.message(body=report_for(s.attempt, precision="fp16")), "precision fp16"),
    "the report of a canary as that of an attempt": (
        lambda s: s.message(body=report_for(s.attempt, attempt_id=s.canary.pk)),
        "there is no attempt",
    ),
    "the report of an attempt as that of a canary": (lambda s: s.message("canary"), "has no canary"),
    "a colleague's canary": (
        lambda s: s.message("canary", report_for(s.attempt, attempt_id=s.canary.pk, **ABOUT_CANARY), by=s.colleague),
        "has no canary",
    ),
    "oversized body": (lambda s: s.message(body="é" * (MAX_MESSAGE_BYTES // 2 + 1)), "at most 4194304 are taken"),
    "not a report": (lambda s: s.message(body="{}"), "malformed"),
    "a report with something more": (
        lambda s: s.message(body=json.dumps({**json.loads(report_for(s.attempt).model_dump_json()), "rank": 1})),
        "malformed",
    ),
    "a speedup with a failure": (
        lambda s: s.message(
            body=json.dumps({**json.loads(report_for(s.attempt).model_dump_json()), "code": "wrong_values"})
        ),
        "malformed",
    ),
}


@pytest.mark.parametrize("name", MESSAGES)
def test_a_refused_message_leaves_a_trace_and_nothing_else(scene: Scene, name: str) -> None:
    build, words = MESSAGES[name]
    message = build(scene)
    before, trail = state(), AuditEvent.objects.count()
    with structlog.testing.capture_logs() as logs:
        results_app.record(message)
    assert state() == before
    [line] = [entry for entry in logs if entry["event"] == "message refused"]
    assert words in line["reason"]
    known = json.loads(message)["worker"] != "nobody"
    assert AuditEvent.objects.count() - trail == int(known)
    if known:
        event = AuditEvent.objects.latest("created_at")
        assert (event.action, event.detail["bytes"]) == ("refuse message", len(message))


def test_an_oversized_envelope_is_refused_before_it_is_parsed(scene: Scene) -> None:
    message = scene.changed(padding="x" * recording.ENVELOPE_BYTES)
    before = state()
    with structlog.testing.capture_logs() as logs:
        results_app.record(message)
    assert state() == before
    assert f"at most {recording.ENVELOPE_BYTES} are taken" in logs[-1]["reason"]


def test_a_replayed_report_changes_nothing(scene: Scene) -> None:
    message = scene.message()
    results_app.record(message)
    assert Verdict.objects.get().code == "correct"
    before = state()
    for _ in range(3):
        results_app.record(message)
    assert state() == before


def test_another_report_after_the_verdict_changes_nothing(scene: Scene) -> None:
    """The same worker, rightly signed, with another story: the first counts."""
    results_app.record(scene.message())
    before = state()
    results_app.record(scene.message(body=report_for(scene.attempt, code="wrong_values")))
    assert state() == before


def test_replays_after_the_attempt_was_given_up_are_refused(scene: Scene) -> None:
    """What the first worker said of its attempt does not pass for the second's."""
    first = [scene.message(), scene.message("claim", Claim(attempt_id=scene.attempt.pk, attempt_number=1))]
    Attempt.objects.filter(pk=scene.attempt.pk).update(lease_expires_at=scene.attempt.created_at)
    assert lifecycle.expire_lease(scene.attempt.pk)
    assert Attempt.objects.active().get().number == 2
    before = state()
    for message in first:
        results_app.record(message)
    assert state() == before
    assert AuditEvent.objects.filter(action="refuse message", reason__contains="is stale").count() == 2


def test_replays_after_a_cancel_are_refused(scene: Scene) -> None:
    message = scene.message()
    from tests.factories import UserFactory

    lifecycle.cancel_run(scene.attempt.evaluation.run, UserFactory())
    before = state()
    results_app.record(message)
    assert state() == before
    assert not Verdict.objects.exists()


def test_old_progress_renews_nothing_that_is_over_and_moves_nothing_back(scene: Scene) -> None:
    late = scene.message("progress", Progress(attempt_id=scene.attempt.pk, sequence=5, phase="timing"))
    early = scene.message("progress", Progress(attempt_id=scene.attempt.pk, sequence=1, phase="compile"))
    results_app.record(late)
    results_app.record(early)
    scene.attempt.refresh_from_db()
    assert scene.attempt.phase == "timing"
    results_app.record(scene.message())
    before = state()
    results_app.record(late)
    assert state() == before


def test_a_key_that_was_replaced_signs_nothing_any_more(scene: Scene) -> None:
    message = scene.message()
    Worker.objects.filter(pk=scene.holder.pk).update(key="cd" * 32)
    before = state()
    results_app.record(message)
    assert state() == before
