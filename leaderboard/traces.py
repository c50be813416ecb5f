"""Traces of ranks: parts come as messages of a worker, in any order and twice; whole ones lie below the data folder.

A trace never holds up a verdict. What cannot be written (a full disk) leaves a note on its artifact and is tried again
until it can; a part that does not fit what the site asked for is refused.
"""

from __future__ import annotations

import base64
import binascii
import errno
import hashlib
import os
import tempfile
from pathlib import Path

from django.conf import settings

from evaluator.contract import TRACE_PART_BYTES, TracePart
from leaderboard.models import Artifact, ArtifactKind, Attempt, AttemptState, Worker

CONTENT_TYPE = "application/gzip"
FOLDER = "traces"


class TraceRefused(Exception):
    """The part is not of a trace that was asked for. The text says why."""


class NoRoom(Exception):
    """The part could not be written. The text says why; the same part can be stored later."""


def store(part: TracePart, worker: Worker) -> Artifact:
    """Keep one part; with the last one the trace is whole. The same part twice changes nothing.

    Raises ``TraceRefused``, or ``NoRoom`` if the disk takes no more.
    """
    attempt = _attempt(part, worker)
    artifact, _ = Artifact.objects.get_or_create(
        attempt=attempt,
        kind=ArtifactKind.TRACE,
        name=f"rank {part.rank}",
        defaults={"sha256": part.sha256, "size": part.size, "content_type": CONTENT_TYPE},
    )
    if (artifact.sha256, artifact.size) != (part.sha256, part.size):
        raise TraceRefused(f"there is another trace of {artifact.name} of attempt {attempt.pk}")
    if artifact.file:
        return artifact
    data = _data(part)
    folder = settings.DATA_DIR / FOLDER / str(attempt.pk)
    try:
        _write(folder / f"rank_{part.rank}.part_{part.part}", data)
        whole = _assembled(folder, part)
        if whole is not None:
            path = folder / f"rank_{part.rank}.trace.json.gz"
            _write(path, whole)
            _keep(artifact, file=str(path.relative_to(settings.DATA_DIR)), note="")
            _forget_parts(folder, part)
    except OSError as error:
        needed = f"{part.size:,} bytes"
        why = "the disk of this site is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error.strerror)
        _keep(artifact, note=f"Not stored yet: {why} ({needed} needed). It is kept in the queue and tried again.")
        raise NoRoom(f"trace of {artifact.name} of attempt {attempt.pk}: {why}") from error
    return artifact


def path_of(artifact: Artifact) -> Path | None:
    """The file of a stored trace; None if it is not (or no longer) there."""
    path: Path = settings.DATA_DIR / artifact.file
    return path if artifact.file and path.is_file() else None


def file_name(artifact: Artifact) -> str:
    """Name for the download: "problem_13_rank_0.trace.json.gz"."""
    problem = artifact.attempt.submission.problem.number
    return f"problem_{problem}_{artifact.name.replace(' ', '_')}.trace.json.gz"


def _attempt(part: TracePart, worker: Worker) -> Attempt:
    attempt = Attempt.objects.select_related("evaluation__target", "submission__run").filter(pk=part.attempt_id).first()
    if attempt is None:
        raise TraceRefused(f"there is no attempt {part.attempt_id}")
    if attempt.worker_id != worker.pk:
        raise TraceRefused(f"attempt {attempt.pk} is held by worker {attempt.worker}, not by {worker.name}")
    if attempt.state not in (AttemptState.LEASED, AttemptState.RECORDED):
        raise TraceRefused(f"attempt {attempt.pk} is {attempt.state}")
    if not attempt.submission.run.record_profile:
        raise TraceRefused(f"nobody asked for traces of attempt {attempt.pk}")
    if part.rank >= attempt.evaluation.target.world_size:
        raise TraceRefused(f"attempt {attempt.pk} has no rank {part.rank}")
    return attempt


def _data(part: TracePart) -> bytes:
    try:
        data = base64.b64decode(part.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise TraceRefused(f"part {part.part} of a trace is no base64: {error}") from error
    start = part.part * TRACE_PART_BYTES
    wanted = min(TRACE_PART_BYTES, part.size - start)
    if part.parts != -(-part.size // TRACE_PART_BYTES) or len(data) != wanted:
        raise TraceRefused(
            f"part {part.part} of {part.parts} has {len(data)} bytes; of a trace of {part.size} bytes it has {wanted}"
        )
    return data


def _assembled(folder: Path, part: TracePart) -> bytes | None:
    """The whole trace if all its parts are there. Raises ``TraceRefused`` if they are not what was announced."""
    files = [folder / f"rank_{part.rank}.part_{number}" for number in range(part.parts)]
    if not all(file.is_file() for file in files):
        return None
    whole = b"".join(file.read_bytes() for file in files)
    if hashlib.sha256(whole).hexdigest() != part.sha256:
        _forget_parts(folder, part)
        raise TraceRefused(f"the parts of the trace of rank {part.rank} do not have the sha256 that they announce")
    return whole


def _forget_parts(folder: Path, part: TracePart) -> None:
    for number in range(part.parts):
        (folder / f"rank_{part.rank}.part_{number}").unlink(missing_ok=True)


def _write(path: Path, data: bytes) -> None:
    """Writes the file whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _keep(artifact: Artifact, **fields: str) -> None:
    for name, value in fields.items():
        setattr(artifact, name, value)
    artifact.save(update_fields=list(fields))
