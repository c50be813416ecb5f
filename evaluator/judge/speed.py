"""The timing phase: which baseline, the paired comparison with it, and what its outcome means for the report."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from evaluator import gpus, targets
from evaluator.contract import Code, Decision, Interval, Job, Phase, Timing
from evaluator.judge import baseline, bounds, timing
from evaluator.judge.arm import Arm
from evaluator.judge.crosscheck import Batch
from evaluator.judge.faults import Fault
from evaluator.judge.layout import Partition
from evaluator.judge.record import Record
from evaluator.judge.statistics import BLOCK_RULES, SHOWN_CONFIDENCE
from evaluator.judge.trials import Trial, TrialResult
from evaluator.judge.verdict import case_result, fault_of_trials, note_errors
from evaluator.judge.voids import Disturbed
from evaluator.targets import Target
from problems.suite.base import Case, Problem
from problems.suite.reference import reference_source


@dataclass(frozen=True)
class Pilot:
    """What is known of the reference before anything of the candidate is called."""

    seconds: float
    """Of one call."""
    noop: Batch
    """Calls that do nothing."""


@dataclass
class Speed:
    """The timing of one evaluation. ``example``: a trial of the public case."""

    job: Job
    record: Record
    target: Target
    problem: Problem
    case: Case
    example: Trial
    reference: Arm
    candidate: Arm
    partitions: list[Partition]
    source_bytes: int
    target_bytes: int
    pilot: Pilot
    candidate_seconds: float

    def run(self, budget: float) -> None:
        """Compares and notes the outcome, within ``budget`` seconds. Raises Fault if the candidate fails."""
        try:
            with self.record.phase(Phase.TIMING, "warming up") as detail:
                began = time.monotonic()
                choice = self._choose_baseline(budget)
                try:
                    comparison = self._comparison(self.candidate, budget - (time.monotonic() - began), choice)
                    measured, decision = self._run(comparison)
                finally:
                    self.reference.submit(reference_source(self.problem))
                self._note(comparison, choice.noted_in(measured), decision)
                pairs, calls = len(measured.pairs), measured.calls_per_block
                detail.append(f"{pairs} pairs of blocks with {calls} calls each.")
        except timing.OutOfTime as reason:
            self.record.skip(Phase.TIMING, str(reason))
            self.record.message = f"Correct; too slow to be compared with the reference. {reason}"
        except Disturbed as reason:
            self.record.skip(Phase.TIMING, str(reason))
            self.record.message = f"Correct; not compared with the reference. {reason}"

    def _run(self, comparison: timing.Comparison) -> tuple[Timing, Decision]:
        try:
            return comparison.run()
        finally:
            self.record.scheduled += comparison.scheduled

    def _comparison(self, candidate: Arm, budget: float, choice: baseline.Choice) -> timing.Comparison:
        input_bytes = sum(encoded.size for encoded in self.example.encoded)
        return timing.Comparison(
            problem=self.problem,
            case=self.case,
            reference=self.reference,
            candidate=candidate,
            partitions=self.partitions,
            source_bytes=self.source_bytes,
            target_bytes=self.target_bytes,
            names=list(self.example.arguments[0]),
            calls=timing.calls_per_block(self.pilot.seconds, self.candidate_seconds, input_bytes, budget),
            limits=self.job.limits,
            budget=budget,
            noop=self.pilot.noop,
            rule=BLOCK_RULES[self.target.device],
            source="judge" if self.target.device == "cpu" else "events",
            cache_bytes=targets.last_level_cache_bytes(self.target),
            states=self._states(),
            progress=self.record.step,
            verified=self._verified,
            first_call_seconds=self.job.limits.call if choice.name == "eager" else self.job.limits.compile,
        )

    def _states(self) -> Callable[[], tuple[gpus.Gpu, ...]] | None:
        """Looks at the GPUs of the ranks, where there are any; a hint says so if the driver does not tell."""
        numbers = self.reference.hardware.numbers
        if not numbers:
            return None
        try:
            gpus.read()
        except gpus.GpusUnavailable as reason:
            self.record.hints.append(f"Clocks and what slows them were not logged. {reason}")
            return None
        return lambda: tuple(gpu for gpu in gpus.read() if gpu.index in numbers)

    # The baseline.

    def _choose_baseline(self, budget: float) -> baseline.Choice:
        """The strongest of the target's baselines, put into the reference's arm; chosen once on each host."""
        if len(self.target.baselines) == 1:
            return baseline.Choice()
        source = reference_source(self.problem)
        key = baseline.key(
            problem=self.record.problem_digest,
            target=self.target.name,
            world_size=self.job.world_size,
            precision=self.job.precision,
            versions=self.record.versions,
        )

        def compare(name: str) -> tuple[Interval, Decision]:
            self.record.step(0, 0, f"comparing {baseline.TITLES[name]} with the eager reference")
            rival = self.reference.twin(f"{name} baseline")
            try:
                rival.submit(baseline.source_of(name, source))
                rival.wait_up()
                comparison = self._comparison(rival, baseline.BUDGET_SHARE * budget, baseline.Choice())
                slow_start = self.job.limits.model_copy(update={"call": self.job.limits.compile})
                comparison = replace(comparison, limits=slow_start, verified=_must_pass)
                _, decision = self._run(comparison)
            finally:
                rival.stop()
            return comparison.look.interval(SHOWN_CONFIDENCE), decision

        choice = baseline.strongest(self.target.baselines, key, compare)
        if choice.name != "eager":
            self.reference.keep_compiled()
            self.reference.submit(baseline.source_of(choice.name, source))
        return choice

    # What the outcome means.

    def _note(self, comparison: timing.Comparison, measured: Timing, decision: Decision) -> None:
        speedup = comparison.look.interval(SHOWN_CONFIDENCE)
        self.record.timing, self.record.speedup = measured, speedup
        self._note_throughput(measured)
        self._check_clock(measured)
        self._note_bound(measured)
        self.record.decision = decision
        self.record.message = _sentence(decision, speedup, measured.baseline)

    def _note_throughput(self, measured: Timing) -> None:
        """The bare ratio of calls back to back, beside the public rule's verdict."""
        found = measured.throughput
        if found is not None and found.candidate_seconds > 0:
            ratio = found.reference_seconds / found.candidate_seconds
            self.record.compatible = self.record.compatible.model_copy(update={"speedup": ratio})

    def _check_clock(self, measured: Timing) -> None:
        """A remark where the judge's own clock is the sample; where events are, the result is held."""
        check = measured.clock
        if check is None or check.agrees:
            return
        sentence = (
            f"By the judge's clock a call took {check.candidate * 1e6:.0f} µs longer than by the ranks' own; "
            f"{check.low * 1e6:.0f} to {check.high * 1e6:.0f} µs are usual on this host."
        )
        if check.source == "judge":
            self.record.hints.append(f"{sentence} The judge's clock counts.")
            return
        raise Fault(Code.INTEGRITY, f"{sentence} The result is held for review.", normalised="clocks disagree")

    def _note_bound(self, measured: Timing) -> None:
        """Physics: what the target allows at most. A time below it is held, whatever the outputs."""
        limit = bounds.bound(self.problem.cost(self.case, self.example.arguments), self.target.peaks)
        if limit is None:
            self.record.hints.append(
                f"No roofline bound is given on {self.target.name}: the peaks of its hardware are not known."
            )
            return
        self.record.bound = bounds.utilised(limit, measured.candidate_seconds)
        if bounds.impossible(limit, measured.candidate_seconds):
            raise bounds.held(limit, measured.candidate_seconds, self.target.title)

    def _verified(self, result: TrialResult, earlier: int | None) -> None:
        """A timed call checked in full; a wrong one ends the evaluation."""
        if result.passed:
            return
        self.record.cases.append(case_result(result, kind="timed"))
        note_errors(self.record.ranks, result)
        fault = fault_of_trials(self.problem, [result], self.record.ranks)
        assert fault is not None
        fault.message = f"In {result.trial.name}: {fault.message}"
        if earlier is not None:
            fault.message += f" The output is that of timed call {earlier}, although the inputs were others."
            fault.normalised = "output of an earlier call"
        raise fault


def _must_pass(result: TrialResult, earlier: int | None) -> None:
    if not result.passed:
        raise Fault(Code.WRONG_VALUES, f"It is wrong in {result.trial.name}: {'; '.join(result.sentences())}.")


def _sentence(decision: Decision, speedup: Interval, against: str) -> str:
    what = "the reference" if against == "eager" else f"the reference under {baseline.TITLES[against]}"
    numbers = f"{speedup.estimate:.3f} times as fast as {what} (95 % interval {speedup.low:.3f} to {speedup.high:.3f})"
    return {
        Decision.FASTER: f"Correct and faster: {numbers}.",
        Decision.SLOWER: f"Correct but slower: {numbers}.",
    }.get(decision, f"Correct; no difference in speed that this measurement can tell: {numbers}.")
