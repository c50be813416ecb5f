"""The report as it grows: whatever happens later, what is known by then is kept."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from evaluator.contract import (
    Bound,
    CaseResult,
    Census,
    Code,
    Compatible,
    Decision,
    Interval,
    Isolation,
    Job,
    Phase,
    PhaseResult,
    PhaseStatus,
    Profile,
    Progress,
    Report,
    Similarity,
    Timing,
)
from evaluator.judge.faults import Fault, RankState, clip

if TYPE_CHECKING:
    from evaluator.judge.traces import Trace  # imports torch, which takes its time


class Record:
    """Collects phases and results of one evaluation, reports progress, and makes the report in the end."""

    def __init__(self, job: Job, progress: Callable[[Progress], None]) -> None:
        self.job = job
        self.problem_digest = job.problem_digest
        self.code = Code.CORRECT
        self.message = ""
        self.failure_id = ""
        self.hints: list[str] = []
        self.ranks: list[RankState] = [RankState(rank) for rank in range(job.world_size)]
        self.cases: list[CaseResult] = []
        self.decision = Decision.NONE
        self.speedup: Interval | None = None
        self.timing: Timing | None = None
        self.bound: Bound | None = None
        self.compatible = Compatible()
        self.mechanisms: tuple[str, ...] = ()
        self.census: Census | None = None
        self.similarity: Similarity | None = None
        self.profile: Profile | None = None
        self.traces: list[Trace] = []
        self.isolation: Isolation | None = None
        self.versions: dict[str, str] = {}
        self.scheduled = 0.0
        self._phases: dict[Phase, PhaseResult] = {}
        self._phase = Phase.STATIC
        self._progress = progress
        self._sequence = 0
        self._started = time.monotonic()

    @property
    def elapsed(self) -> float:
        """Seconds since the evaluation began."""
        return time.monotonic() - self._started

    @contextmanager
    def phase(self, phase: Phase, note: str = "") -> Iterator[list[str]]:
        """Runs a phase. A fault inside marks it failed; what is put into the list becomes its detail."""
        self._phase = phase
        for state in self.ranks:
            state.reached = phase
        self.step(0, 0, note)
        begin = time.monotonic()
        detail: list[str] = []
        status = PhaseStatus.FAILED
        try:
            yield detail
            status = PhaseStatus.PASSED
        except Fault as fault:
            detail.append(fault.message)
            raise
        finally:
            seconds = time.monotonic() - begin
            text = clip(" ".join(detail))
            self._phases[phase] = PhaseResult(phase=phase, status=status, seconds=seconds, detail=text)

    def skip(self, phase: Phase, reason: str) -> None:
        """Marks a phase that does not run."""
        self._phases[phase] = PhaseResult(phase=phase, status=PhaseStatus.SKIPPED, detail=clip(reason))

    def step(self, done: int, total: int, note: str = "") -> None:
        """A sign of life from the current phase."""
        self._progress(
            Progress(
                attempt_id=self.job.attempt_id,
                sequence=self._sequence,
                phase=self._phase,
                done=done,
                total=total,
                note=clip(note),
            )
        )
        self._sequence += 1

    def fail(self, fault: Fault) -> None:
        """The submission's verdict is this fault."""
        self.code, self.message, self.failure_id = fault.code, clip(fault.message), fault.failure_id
        self.hints += [clip(hint) for hint in fault.hints]
        self.decision, self.speedup = Decision.NONE, None
        for phase, result in self._phases.items():  # what a launch has found out only when it was over
            if result.status is PhaseStatus.FAILED and not result.detail:
                self._phases[phase] = result.model_copy(update={"detail": self.message})
        for state in fault.ranks:
            known = self.ranks[state.rank]
            state.max_error = known.max_error if state.max_error is None else state.max_error
            state.bad_fraction = known.bad_fraction if state.bad_fraction is None else state.bad_fraction
            self.ranks[state.rank] = state

    def harness_failure(self, message: str) -> None:
        """We failed: no verdict."""
        self.code, self.message, self.failure_id = Code.HARNESS_FAILURE, clip(message), ""
        self.hints = ["This is not the submission's fault; it does not count and is tried again."]
        self.decision, self.speedup = Decision.NONE, None

    def report(self) -> Report:
        """The report; phases that never came are skipped."""
        reason = "an earlier phase failed" if self.code is not Code.CORRECT else "not asked for"
        phases = [
            self._phases.get(phase, PhaseResult(phase=phase, status=PhaseStatus.SKIPPED, detail=reason))
            for phase in Phase
        ]
        return Report(
            attempt_id=self.job.attempt_id,
            problem_id=self.job.problem_id,
            problem_digest=self.problem_digest,
            target=self.job.target,
            world_size=self.job.world_size,
            precision=self.job.precision,
            code=self.code,
            decision=self.decision,
            speedup=self.speedup,
            compatible=self.compatible,
            message=self.message,
            hints=tuple(dict.fromkeys(self.hints)),
            failure_id=self.failure_id,
            phases=tuple(phases),
            ranks=tuple(state.result() for state in self.ranks),
            cases=tuple(self.cases),
            timing=self.timing,
            bound=self.bound,
            mechanisms=self.mechanisms,
            census=self.census,
            similarity=self.similarity,
            profile=self.profile,
            isolation=self.isolation,
            versions=self.versions,
            host=platform.node()[:200],
            seconds=self.elapsed,
            scheduled_seconds=self.scheduled,
        )
