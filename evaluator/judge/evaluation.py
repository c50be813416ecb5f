"""The phases of an evaluation that need torch, from the first launch of ranks to the census."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from evaluator import gpus, targets
from evaluator.contract import CaseResult, Code, Compatible, Job, Phase, Precision
from evaluator.judge import bounds, mechanisms, probes, trials
from evaluator.judge.arm import Arm
from evaluator.judge.checks import publicly_refused
from evaluator.judge.crosscheck import Batch
from evaluator.judge.diagnosis import fault_of
from evaluator.judge.faults import Fault, HarnessFault
from evaluator.judge.labelling import Labelling
from evaluator.judge.launch import Launch
from evaluator.judge.layout import Partition
from evaluator.judge.observer import Observer
from evaluator.judge.oracles import with_oracle_on
from evaluator.judge.record import Record
from evaluator.judge.speed import Pilot, Speed
from evaluator.judge.statistics import median, undisturbed
from evaluator.judge.trials import Ring, Trial, TrialResult
from evaluator.judge.verdict import case_result, fault_of_trials, note_errors
from problems.suite import registry
from problems.suite.reference import reference_source

DTYPES = {Precision.FP32: torch.float32, Precision.BF16: torch.bfloat16, Precision.FP16: torch.float16}
PILOT_CALLS = 6
CACHE_MULTIPLE = 3
"""Slots of the input regions rotate over this multiple of the last-level cache."""
FIRST_CALL_SECONDS = 120.0
"""Of the first call of a file that builds something, where Triton compiles: a deadlock there must not take longer."""
GPU_HOST_THREADS = 4
MAX_REGIONS_BYTES = 512 * 1024**2
"""Most memory that the input regions of all ranks of an arm take for the sake of rotation."""


def rotated_bytes(cache_bytes: int, largest: int, world_size: int) -> int:
    """Size of the input region of each rank, in bytes.

    All ranks' regions together hold CACHE_MULTIPLE times the last-level cache, so that a slot's address comes again
    only when so much else has been written; and each has room for two of the ``largest`` input sets at least.
    """
    return max(2 * largest, -(-min(CACHE_MULTIPLE * cache_bytes, MAX_REGIONS_BYTES) // world_size))


class Evaluation:
    """One evaluation: the two arms are started, nothing else is done yet."""

    def __init__(self, job: Job, record: Record, reference: Arm, candidate: Arm) -> None:
        self.job = job
        self.record = record
        self.reference = reference
        self.candidate = candidate
        self.target = targets.target(job.target)
        self.problem = with_oracle_on(registry.get(job.problem_id), self.target.device)
        self.dtype = DTYPES[job.precision]
        self.case = self.problem.public_case(world_size=job.world_size, dtype=self.dtype, device=self.target.device)
        if self.case.dtype != self.dtype:
            own = str(self.case.dtype).removeprefix("torch.")
            record.hints.append(f"The inputs of this problem are {own} whatever the precision of the run.")
        self.builds = bool(mechanisms.scan(job.source).labels & {mechanisms.OWN_CUDA, mechanisms.TRITON})
        """True if the source compiles something, which takes its time."""
        self.partitions: list[Partition] = []
        self.trials: list[Trial] = []
        self.source_bytes = 0
        self.target_bytes = 0
        self.pilot = Pilot(0.0, Batch((), ()))
        self.candidate_seconds = 0.0
        """Median time of the candidate's calls in the public trials."""

    def run(self, *, with_timing: bool, with_probes: bool) -> None:
        """All phases in order. Raises Fault at the first that the submission fails."""
        with _few_threads(self.target.device):
            self._prepare()
            self._correctness()
            if not self.target.timed:
                self.record.skip(Phase.TIMING, f"Times on {self.target.name} say nothing: its ranks share one GPU.")
            elif with_timing:
                self._timing()
            else:
                self.record.skip(Phase.TIMING, "Not asked for.")
            if with_probes:
                self._probes()
            else:
                self.record.skip(Phase.PROBES, "Not asked for.")
            self._census(with_calls=with_timing or self.job.profile)
        self.record.message = self.record.message or "Correct."

    def _prepare(self) -> None:
        """Draws the trials while the fork servers start."""
        refusal = self.problem.world_size_rule(self.job.world_size, self.case.sizes)
        if refusal:
            raise HarnessFault(f"Problem {self.problem.id} cannot run with {self.job.world_size} ranks: {refusal}")
        cases = trials.cases_of(
            self.problem, world_size=self.job.world_size, dtype=self.dtype, device=self.target.device
        )
        self.trials = [trials.draw(self.problem, name, case, self.partitions) for name, case in cases]
        largest, output = trials.largest(self.trials)
        self.source_bytes = rotated_bytes(targets.last_level_cache_bytes(self.target), largest, self.job.world_size)
        self.target_bytes = 2 * output + trials.OUTPUT_SLACK
        self.reference.submit(reference_source(self.problem))
        self.candidate.submit(self.job.source)
        for arm in (self.reference, self.candidate):
            arm.wait_up()
        self.record.versions = self._versions()

    def _versions(self) -> dict[str, str]:
        return {
            **(_of_gpus(self.candidate.hardware.numbers) if self.target.device == "cuda" else {}),
            "python": self.candidate.python,
            "torch": self.candidate.torch,
            "suite": registry.SUITE_VERSION,
            "kernel": platform.release(),
            "cpus": str(len(os.sched_getaffinity(0))),
            "threads per rank": str(targets.threads_per_rank(self.job.world_size)),
        }

    def _launch(self, arm: Arm, *, source_bytes: int = 0, target_bytes: int = 0) -> Launch:
        """Ranks of an arm. ``source_bytes``: of input regions, if not as usual; ``target_bytes``: least of others."""
        return Launch(
            arm,
            self.partitions,
            source_bytes=source_bytes or self.source_bytes,
            target_bytes=max(self.target_bytes, target_bytes),
            diagnose=fault_of,
        )

    @property
    def names(self) -> list[str]:
        """Names of the arguments, in order."""
        return list(self.trials[0].arguments[0])

    def _within(self, seconds: float) -> float:
        """A budget, cut by what is left of the hard cap. Raises Fault when nothing is."""
        left = self.job.limits.total - self.record.elapsed
        if left <= 0:
            raise Fault(Code.TOO_SLOW, f"The evaluation did not end within {self.job.limits.total:.0f} s.")
        return min(seconds, left)

    # Compile, import, ready, trials.

    def _correctness(self) -> None:
        limits, record = self.job.limits, self.record
        with self._launch(self.reference) as ours, self._launch(self.candidate) as theirs:
            with record.phase(Phase.COMPILE, "compiling") as detail:
                ours.initialise(limits.ready)
                theirs.initialise(limits.ready)
                theirs.compile_file(self._within(limits.compile))
                detail.append("Builds when it is imported." if self.builds else "Python only: nothing to build.")
            with record.phase(Phase.IMPORT, "importing on every rank"):
                # Extensions are built while the file runs as a module, by the first rank that comes.
                theirs.import_file(self._within(limits.compile if self.builds else limits.ready))
            with record.phase(Phase.READY, "waiting for every rank") as detail:
                theirs.make_ready(self.names, self._within(limits.ready))
                detail.append(f"{self.job.world_size} of {self.job.world_size} ranks.")
            with record.phase(Phase.TRIALS) as detail:
                self._trials(ours, theirs)
                detail.append(f"{len(self.trials)} of {len(self.trials)} passed.")

    def _trials(self, ours: Launch, theirs: Launch) -> None:
        limits, record = self.job.limits, self.record
        try:
            ours.compile_file(limits.ready)
            ours.import_file(limits.ready)
            ours.make_ready(self.names, limits.ready)
            rings = Ring(self.source_bytes), Ring(self.source_bytes)
            results: list[TrialResult] = []
            public: list[float] = []
            seconds: list[float] = []
            self.pilot = self._pilot(ours, rings[0])  # nothing of the candidate has been called yet
            for number, trial in enumerate(self.trials):
                record.step(number, len(self.trials), f"trial {number + 1} of {len(self.trials)}")
                known = trials.run(self.problem, trial, ours, rings[0], limits.call, Phase.TRIALS)
                if not known.passed:
                    raise HarnessFault(f"The reference fails its own trial {trial.name!r}: {known.sentences()}")
                # What is built in the first call, too, is built once: later launches load it.
                limit = max(limits.call, min(limits.compile, FIRST_CALL_SECONDS))
                limit = limit if self.builds and number == 0 else limits.call
                result = trials.run(self.problem, trial, theirs, rings[1], self._within(limit), Phase.TRIALS)
                results.append(result)
                record.cases.append(self._with_bound(result))
                note_errors(record.ranks, result)
                if trial.case.kind == "public":
                    public.append(publicly_refused(known.checks, result.checks))
                    seconds.append(result.seconds)
            self.candidate_seconds = median(seconds)
        finally:
            record.scheduled += ours.scheduled + theirs.scheduled
            for state, log in zip(record.ranks, theirs.logs(), strict=True):
                state.log = log
        fault = fault_of_trials(self.problem, results, record.ranks)
        self._note_compatible(max(public), refused=fault is not None)
        if fault is not None:
            raise fault

    def _pilot(self, ours: Launch, ring: Ring) -> Pilot:
        """Calls of the reference, from which the number of timed calls follows, and calls that do nothing."""
        limit = self.job.limits.call
        trial = next(t for t in self.trials if t.case.kind == "public")
        samples = []
        for _ in range(PILOT_CALLS):
            start = ring.place(trial.input_bytes)
            samples.append(ours.call(trial.encoded, start, perturb=0, seconds=limit, phase=Phase.TRIALS).seconds)
        empty = [ours.nothing(limit, Phase.TRIALS) for _ in range(PILOT_CALLS)]
        noop = Batch([call.seconds for call in empty], [call.claimed or 0.0 for call in empty])
        return Pilot(undisturbed(samples), noop)

    def _with_bound(self, result: TrialResult) -> CaseResult:
        """The result of a trial with its time and what the target allows at most for its shape and data.

        Raises Fault where the time is impossible.
        """
        found = bounds.bound(self.problem.cost(result.trial.case, result.trial.arguments), self.target.peaks)
        case = case_result(result).model_copy(update={"seconds": result.seconds})
        if found is None or result.seconds <= 0:
            return case
        case = case.model_copy(update={"bound": bounds.utilised(found, result.seconds)})
        if result.passed and bounds.impossible(found, result.seconds):
            self.record.cases.append(case)
            raise bounds.held(found, result.seconds, self.target.title)
        return case

    def _note_compatible(self, share: float, *, refused: bool) -> None:
        """The public rule's verdict; ``share``: of the elements of a tensor that it refuses at most."""
        correct = share == 0.0
        reason = ""
        if not correct:
            reason = "The public rule refuses as well." if refused else "rounding"
        if reason == "rounding":
            self.record.hints.append(
                f"The public rule (allclose at 1e-2 with the reference's output) refuses {share:.3%} of a tensor, by "
                "rounding alone: the output is within the calibrated tolerance of the exact result everywhere."
            )
        self.record.compatible = Compatible(correct=correct, reason=reason)

    # Timing.

    def _timing(self) -> None:
        Speed(
            job=self.job,
            record=self.record,
            target=self.target,
            problem=self.problem,
            case=self.case,
            example=self.trials[0],
            reference=self.reference,
            candidate=self.candidate,
            partitions=self.partitions,
            source_bytes=self.source_bytes,
            target_bytes=self.target_bytes,
            pilot=self.pilot,
            candidate_seconds=self.candidate_seconds,
        ).run(self._within(self.job.limits.timing))

    # Probes and census.

    def _probes(self) -> None:
        """Single changes of an input, and calls back to back (``judge.probes``)."""
        with self.record.phase(Phase.PROBES, "drawing probes") as detail, self._launch(self.candidate) as theirs:
            theirs.load(self.names, self._within(self.job.limits.ready))
            setting = probes.Setting(
                self.problem, self.trials, self.job.limits, self.candidate_seconds, self.record.ranks
            )
            todo = probes.probes(setting, self.partitions)
            try:
                for number, probe in enumerate(todo):
                    self.record.step(number, len(todo), f"probe: {probe.name}")
                    self._within(self.job.limits.call)
                    fault = probe.run(theirs)
                    if fault is None:
                        detail.append(probe.note)
                    elif self._reference_passes(probe, fault):
                        raise fault
            finally:
                self.record.scheduled += theirs.scheduled
            if any(isinstance(probe, probes.Repeat) and not probe.deterministic for probe in todo):
                self.record.hints.append("Results differ from run to run within the tolerance (not deterministic).")

    def _reference_passes(self, probe: probes.Probe, fault: Fault) -> bool:
        with self._launch(self.reference) as ours:
            ours.load(self.names, self.job.limits.ready)
            return probes.blame(probe, ours, fault)

    def _census(self, *, with_calls: bool) -> None:
        """Labels, from the source and from extra calls; whatever they do, the verdict stands."""
        with self.record.phase(Phase.CENSUS, "labelling mechanisms") as detail:
            labelling = Labelling(self.job, self.record, self.reference, self.candidate, reference_source(self.problem))
            if not with_calls:
                detail.append(labelling.from_source())
                return
            public = [trial for trial in self.trials if trial.case.kind == "public"]
            observer = Observer(
                launch=self._launch,
                names=self.names,
                inputs=[trial.encoded for trial in public],
                source_bytes=2 * max(trial.input_bytes for trial in public),
                ready_seconds=self._within(self.job.limits.ready),
                call_seconds=self._within(self.job.limits.call),
            )
            detail.append(labelling.from_calls(observer))
            self.record.scheduled += observer.scheduled


def _of_gpus(numbers: tuple[int, ...]) -> dict[str, str]:
    """Versions that decide about GPUs, and which they are. Raises GpusUnavailable."""
    used = [gpu for gpu in gpus.read() if gpu.index in numbers]
    return {
        "gpus": ", ".join(gpu.name for gpu in used),
        "driver": ", ".join(sorted({gpu.driver for gpu in used})),
        "cuda": torch.version.cuda or "",
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),  # type: ignore[no-untyped-call]
    }


@contextmanager
def _few_threads(device: str) -> Iterator[None]:
    """The judge computes on one thread beside ranks on CPUs: idle threads of a pool spin and would disturb them.

    Beside ranks on GPUs it hides and compares large tensors on a few.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1 if device == "cpu" else min(before, GPU_HOST_THREADS))
    try:
        yield
    finally:
        torch.set_num_threads(before)
