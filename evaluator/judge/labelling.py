"""The census phase: mechanisms, shares of time, likeness to the reference, and traces where they were asked for."""

from __future__ import annotations

from dataclasses import dataclass

from evaluator.contract import Job
from evaluator.judge import census, mechanisms, similarity, traces
from evaluator.judge.arm import Arm
from evaluator.judge.observations import Observation
from evaluator.judge.observer import CENSUS_BYTES, CENSUS_CALLS, PROFILE_BYTES, PROFILE_CALLS, Observer
from evaluator.judge.record import Record


@dataclass(frozen=True)
class Labelling:
    """Labels one correct submission. ``reference_text``: the reference's source."""

    job: Job
    record: Record
    reference: Arm
    candidate: Arm
    reference_text: str

    def from_source(self) -> str:
        """What the source alone says; returns a sentence for the phase."""
        self.record.mechanisms = mechanisms.scan(self.job.source).static_labels()
        return "From the source alone."

    def from_calls(self, observer: Observer) -> str:
        """What extra calls under a profiler show on top of that; returns a sentence for the phase."""
        scan = mechanisms.scan(self.job.source)
        self.from_source()
        program = similarity.of_programs(self.job.source, self.reference_text)
        both = similarity.worth_comparing(program, scan)
        observed = self._observed(observer, both)
        if observed is None:
            return "From the source alone: the calls under the profiler failed, which changes nothing of the verdict."
        found, theirs = observed[-1], observed[0] if both else None
        self.record.census = census.census_of(found, scan)
        self.record.mechanisms = mechanisms.merged(scan, census.confirmed(found, scan))
        operations = similarity.of_operations(found, theirs) if theirs else None
        self.record.similarity = similarity.judge(program, operations, self.record.decision)
        if self.record.similarity.label:
            self.record.mechanisms = (*self.record.mechanisms, mechanisms.WRAPPER)
            self.record.hints.append(_SENTENCES[self.record.similarity.label])
        if self.job.profile:
            self._keep_traces(found, scan)
        return f"From the source and {len(found[0].calls)} calls under the profiler."

    def _observed(self, observer: Observer, both: bool) -> list[list[Observation]] | None:
        arms = (self.reference, self.candidate) if both else (self.candidate,)
        calls, room = (PROFILE_CALLS, PROFILE_BYTES) if self.job.profile else (CENSUS_CALLS, CENSUS_BYTES)
        observed = observer.observe(arms, calls=calls, record_bytes=room)
        if observed is not None and any(record.dropped for records in observed for record in records):
            # One whole call says more than the first half of several.
            observed = observer.observe(arms, calls=1, record_bytes=room) or observed
        return observed

    def _keep_traces(self, found: list[Observation], scan: mechanisms.Scan) -> None:
        files = [traces.trace_of(rank, observation) for rank, observation in enumerate(found)]
        self.record.profile = traces.profile_of(found, files, scan)
        if self.record.profile is not None:
            self.record.traces = files


_SENTENCES = {
    "baseline duplicate": (
        "This is the reference's program under other names and runs the same operations: it is labelled a duplicate of "
        "the baseline and does not rank."
    ),
    "wrapper": (
        "This calls the operations of the reference in the same order and little else: it is labelled a wrapper of the "
        "reference and does not rank."
    ),
}
