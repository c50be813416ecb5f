"""Traces: parts in any order and twice, other people's, too much, and disks without room."""

from __future__ import annotations

import base64
import errno
import hashlib
import random
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from evaluator.contract import TRACE_PART_BYTES, Claim, Signed, TracePart
from leaderboard import dispatch, lifecycle, recording, traces
from leaderboard.models import Artifact, ArtifactKind, Attempt, AuditEvent, Run, Standing, Verdict, Worker
from tests.factories import AttemptFactory, WorkerFactory
from tests.reports import report_for

LONG = random.Random(1).randbytes(TRACE_PART_BYTES + 1_000)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: object) -> Iterator[Path]:
    settings.DATA_DIR = tmp_path  # type: ignore[attr-defined]
    yield tmp_path


@pytest.fixture
def attempt(db: None) -> Attempt:
    attempt: Attempt = AttemptFactory()
    Run.objects.filter(pk=attempt.evaluation.run_id).update(record_profile=True)
    return Attempt.objects.get(pk=attempt.pk)


@pytest.fixture
def worker(attempt: Attempt) -> Worker:
    worker: Worker = WorkerFactory(target=attempt.evaluation.target)
    lifecycle.lease_attempt(Claim(attempt_id=attempt.pk, attempt_number=attempt.number), worker)
    return worker


def parts(attempt: Attempt, data: bytes, rank: int = 0) -> list[TracePart]:
    pieces = [data[at : at + TRACE_PART_BYTES] for at in range(0, len(data), TRACE_PART_BYTES)]
    return [
        TracePart(
            attempt_id=attempt.pk,
            rank=rank,
            part=number,
            parts=len(pieces),
            size=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            data=base64.b64encode(piece).decode(),
        )
        for number, piece in enumerate(pieces)
    ]


def send(part: TracePart, worker: Worker) -> None:
    signed = Signed.seal(worker=worker.name, kind="trace", body=part.model_dump_json(), key=bytes.fromhex(worker.key))
    recording.record_message(signed.model_dump_json())


def test_the_job_asks_for_a_profile_where_the_run_does(attempt: Attempt) -> None:
    assert dispatch.job_for(attempt, "").profile


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 0, 1, 1, 0), (1, 1, 0)])
def test_parts_may_come_in_any_order_and_twice(
    attempt: Attempt, worker: Worker, folder: Path, order: tuple[int, ...]
) -> None:
    both = parts(attempt, LONG)
    for number in order:
        send(both[number], worker)
    artifact = Artifact.objects.get(attempt=attempt, kind=ArtifactKind.TRACE)
    path = traces.path_of(artifact)
    assert path is not None and path.read_bytes() == LONG
    assert [file.name for file in path.parent.iterdir()] == ["rank_0.trace.json.gz"]
    assert artifact.size == len(LONG) and artifact.note == ""


def test_a_trace_may_come_after_the_report(attempt: Attempt, worker: Worker) -> None:
    lifecycle.record_report(report_for(attempt), worker)
    send(parts(attempt, b"late")[0], worker)
    assert Artifact.objects.get(attempt=attempt, kind=ArtifactKind.TRACE).file


def test_half_a_trace_is_no_file(attempt: Attempt, worker: Worker) -> None:
    send(parts(attempt, LONG)[0], worker)
    artifact = Artifact.objects.get(attempt=attempt, kind=ArtifactKind.TRACE)
    assert traces.path_of(artifact) is None


def refused(part: TracePart, worker: Worker) -> str:
    with pytest.raises(recording.Refused) as refusal:
        send(part, worker)
    return str(refusal.value)


def test_what_was_not_asked_for_is_refused(attempt: Attempt, worker: Worker, folder: Path) -> None:
    part = parts(attempt, b"trace")[0]
    other = WorkerFactory(target=attempt.evaluation.target)
    assert "is held by worker" in refused(part, other)
    assert "has no rank 15" in refused(part.model_copy(update={"rank": 15}), worker)
    assert "there is no attempt" in refused(part.model_copy(update={"attempt_id": uuid4()}), worker)
    Run.objects.update(record_profile=False)
    assert "nobody asked" in refused(part, worker)
    assert not list(folder.rglob("*")), "nothing of a refused part is kept"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"data": "!!!!"}, "no base64"),
        ({"data": base64.b64encode(b"more than was announced").decode()}, "has 23 bytes"),
        ({"sha256": "0" * 64}, "do not have the sha256"),
        ({"parts": 2}, "part 0 of 2"),
    ],
)
def test_a_part_that_lies_is_refused(attempt: Attempt, worker: Worker, change: dict[str, object], reason: str) -> None:
    assert reason in refused(parts(attempt, b"trace")[0].model_copy(update=change), worker)
    assert not Artifact.objects.exclude(file="").filter(kind=ArtifactKind.TRACE).exists()


def test_another_trace_of_the_same_rank_does_not_replace_the_first(attempt: Attempt, worker: Worker) -> None:
    send(parts(attempt, b"first")[0], worker)
    assert "another trace" in refused(parts(attempt, b"second")[0], worker)
    path = traces.path_of(Artifact.objects.get(kind=ArtifactKind.TRACE))
    assert path is not None and path.read_bytes() == b"first"


def test_a_full_disk_leaves_a_note_and_loses_nothing(
    attempt: Attempt, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = parts(attempt, b"trace")[0]

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("leaderboard.traces.os.fsync", full)
        with pytest.raises(traces.NoRoom, match="the disk of this site is full"):
            send(part, worker)
        artifact = Artifact.objects.get(kind=ArtifactKind.TRACE)
        assert not artifact.file and "the disk of this site is full (5 bytes needed)" in artifact.note
        lifecycle.record_report(report_for(attempt), worker)  # the verdict does not wait for the disk
    send(part, worker)
    artifact.refresh_from_db()
    assert artifact.file and artifact.note == ""


def test_the_results_worker_puts_a_trace_without_room_behind_the_reports(
    attempt: Attempt, worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from leaderboard import results_app

    sent: list[str] = []

    def no_room(message: str) -> None:
        raise traces.NoRoom("full")

    monkeypatch.setattr(results_app.recording, "record_message", no_room)
    monkeypatch.setattr(results_app, "NO_ROOM_PAUSE", 0.0)
    monkeypatch.setattr(results_app.app, "send_task", lambda name, args, **options: sent.append(args[0]))
    results_app.record("a trace")
    assert sent == ["a trace"]


@pytest.mark.parametrize(
    ("label", "baseline", "standing"),
    [
        ("wrapper", False, Standing.DUPLICATE),
        ("baseline duplicate", False, Standing.DUPLICATE),
        ("", False, Standing.COUNTED),
        ("baseline duplicate", True, Standing.COUNTED),  # the baseline's own row
    ],
)
def test_who_sends_the_reference_in_again_does_not_rank(
    attempt: Attempt, worker: Worker, label: str, baseline: bool, standing: str
) -> None:
    model = attempt.evaluation.run.model
    type(model).objects.filter(pk=model.pk).update(is_baseline=baseline)
    similarity = {"label": label, "source": 1.0, "operations": 1.0}
    lifecycle.record_report(report_for(attempt, similarity=similarity), worker)
    assert Verdict.objects.get(attempt=attempt).standing == standing


def test_a_refused_trace_stands_in_the_audit_trail(attempt: Attempt, worker: Worker) -> None:
    message = Signed.seal(
        worker=worker.name,
        kind="trace",
        body=parts(attempt, b"x", rank=9)[0].model_dump_json(),
        key=bytes.fromhex(worker.key),
    ).model_dump_json()
    with pytest.raises(recording.Refused) as refusal:
        recording.record_message(message)
    recording.note_refusal(refusal.value, message)
    assert "has no rank 9" in AuditEvent.objects.get(action="refuse message").reason
