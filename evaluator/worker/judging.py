"""Runs the judge as a process of its own and reads what it says, line by line, within limits of time and size."""

from __future__ import annotations

import ctypes
import json
import os
import selectors
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from pydantic import ValidationError

from evaluator.contract import (
    MAX_MESSAGE_BYTES,
    MAX_RANKS,
    MAX_SENTENCE,
    MAX_TRACE_BYTES,
    Code,
    Job,
    Progress,
    Report,
    TracePart,
)

MARGIN = 60.0  # seconds beyond the job's total budget until the judge itself counts as hung
MAX_OUTPUT = 4 * MAX_MESSAGE_BYTES  # bytes of all lines together
MAX_TRACES = MAX_RANKS * 2 * MAX_TRACE_BYTES  # bytes of the lines with traces, where they were asked for
STDERR_TAIL = 4_000  # bytes kept of what the judge logs, for the report of its failure
POLL = 0.5  # seconds between two looks at the clock and at whether the evaluation is still wanted
GRACE = 10.0  # seconds between the request to end and SIGKILL

_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class JudgeFailed(Exception):
    """The judge broke its protocol, hung or died. A failure of ours, never of the submission."""


class NoLongerWanted(Exception):
    """The attempt was cancelled or given up meanwhile; the judge was stopped."""


@dataclass
class Judge:
    """One run of ``command`` (``python -m evaluator judge``) on a job.

    The judge gets the job as JSON on standard input and writes one JSON object a line: any number of ``Progress``,
    then ``TracePart`` where the job asks for a profile, then one ``Report``. ``progress`` is called with each of the
    first, ``traces`` collects the second, ``alive`` at least every ``POLL`` seconds;
    ``alive`` returns False when nobody wants the result any more.
    """

    command: Sequence[str]
    job: Job
    progress: Callable[[Progress], None]
    alive: Callable[[], bool]
    margin: float = MARGIN
    report: Report | None = None
    traces: list[TracePart] = field(default_factory=list)
    _stderr: bytes = b""
    _rest: bytes = b""
    _received: int = 0
    _process: subprocess.Popen[bytes] = field(init=False)

    def run(self) -> Report:
        """The judge's report. Raises ``JudgeFailed`` or ``NoLongerWanted``; no process is left in either case."""
        with tempfile.TemporaryFile() as handle:  # a file, not a pipe: a judge that reads late blocks nobody
            handle.write(self.job.model_dump_json().encode())
            handle.seek(0)
            parent = os.getpid()
            try:
                self._process = subprocess.Popen(
                    self.command,
                    stdin=handle,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                    preexec_fn=lambda: _die_with(parent),
                )
            except OSError as error:
                raise JudgeFailed(f"the judge did not start: {error}") from error
        with self._process:
            try:
                self._read()
                return self._result()
            finally:
                self._end()

    def _read(self) -> None:
        deadline = time.monotonic() + self.job.limits.total + self.margin
        assert self._process.stdout and self._process.stderr
        with selectors.DefaultSelector() as selector:
            for stream in (self._process.stdout, self._process.stderr):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            while selector.get_map():
                ended = self._process.poll() is not None
                ready = selector.select(POLL)
                if ended and not ready:
                    return  # whoever still holds the pipe is not the judge
                for key, _ in ready:
                    data = os.read(key.fd, 65_536)
                    if not data:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is self._process.stdout:
                        self._take(data)
                    else:
                        self._stderr = (self._stderr + data)[-STDERR_TAIL:]
                if not self.alive():
                    raise NoLongerWanted
                if time.monotonic() > deadline:
                    raise JudgeFailed(f"no report {self.job.limits.total + self.margin:.0f} s after the start")

    def _take(self, data: bytes) -> None:
        self._received += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        limit = MAX_OUTPUT + (MAX_TRACES if self.job.profile else 0)
        if self._received > limit or any(len(line) > MAX_MESSAGE_BYTES for line in (*lines, self._rest)):
            raise JudgeFailed(f"more than {MAX_MESSAGE_BYTES} bytes in a line or {limit} in all")
        for line in lines:
            self._line(line)

    def _line(self, line: bytes) -> None:
        if self.report is not None:
            raise JudgeFailed("output after the report")
        try:
            value = json.loads(line)
            if isinstance(value, dict) and "code" in value:
                self.report = Report.model_validate_json(line)
                subject = self.report.attempt_id
            elif isinstance(value, dict) and "sha256" in value:
                self.traces.append(TracePart.model_validate_json(line))
                subject = self.traces[-1].attempt_id
            else:
                progress = Progress.model_validate_json(line)
                subject = progress.attempt_id
                self.progress(progress)
        except (ValidationError, ValueError, RecursionError) as error:
            raise JudgeFailed(f"a line of output is neither progress nor report nor trace: {error}") from error
        if subject != self.job.attempt_id:
            raise JudgeFailed(f"output about attempt {subject} instead of {self.job.attempt_id}")

    def _result(self) -> Report:
        if self._rest:
            raise JudgeFailed("the last line of output is cut off")
        status = self._process.wait(GRACE)
        if self.report is None:
            tail = self._stderr.decode(errors="replace").strip()
            raise JudgeFailed(f"exit status {status} without a report. Last words: {tail or '(none)'}")
        return self.report

    def _end(self) -> None:
        """Ask the judge to end, so that it can clear its sandbox away, then kill its whole process group."""
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(GRACE)
            except subprocess.TimeoutExpired:
                self._process.kill()
        try:
            os.killpg(self._process.pid, signal.SIGKILL)
        except ProcessLookupError:
            return  # nobody of the group is left, as it should be


def harness_failure(job: Job, reason: str, *, host: str) -> Report:
    """The report that says that we failed, not the submission."""
    return Report(
        attempt_id=job.attempt_id,
        problem_id=job.problem_id,
        problem_digest=job.problem_digest,
        target=job.target,
        world_size=job.world_size,
        precision=job.precision,
        code=Code.HARNESS_FAILURE,
        message=reason[:MAX_SENTENCE],
        phases=(),
        host=host,
    )


def _die_with(parent: int) -> None:
    """In the child, before exec: get SIGKILL when the worker dies, so that no orphan disturbs the next timing."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before the line above
        os._exit(1)
