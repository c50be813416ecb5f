"""The paired comparison of candidate and reference.

A pair is a fresh launch of both arms on the same CPUs. Its calls alternate, reference and candidate on the same inputs
in an order that the judge draws for each call, and whoever does not run stands still (SIGSTOP): what the machine does
to one arm it does to the other a moment later. The pair gives one log-ratio of the means of the fastest calls;
differences between launches of one program (where its memory lies) are left in the spread of the pairs.

The sample of a call is the judge's own time from letting the job run until the last rank's answer has come and the
job stands still again. On a CPU the inputs come warm from the shared cache, since the judge has just written them.
Where events on the device are the sample (``source``), the judge's time is what they are checked with.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Literal

from evaluator.contract import BlockPair, ClockCheck, Code, Decision, Limits, Phase, Timing
from evaluator.gpus import Gpu
from evaluator.judge import crosscheck, statistics, throughput
from evaluator.judge.agreement import changed, distance
from evaluator.judge.ahead import Ahead
from evaluator.judge.arm import Arm
from evaluator.judge.checks import digest
from evaluator.judge.crosscheck import Batch
from evaluator.judge.diagnosis import fault_of
from evaluator.judge.faults import Fault, HarnessFault
from evaluator.judge.launch import Call, Launch
from evaluator.judge.layout import Encoded, Partition, encode
from evaluator.judge.statistics import BLOCK_RULES, LOOK_CONFIDENCE, LOOKS, BlockRule, Look, median
from evaluator.judge.trials import Ring, Trial, TrialResult, examine, new_seed
from evaluator.judge.voids import Undecided, Voids
from problems.suite.base import Args, Case, Problem, Rng

BLOCK_SECONDS = 0.6
MIN_CALLS, MAX_CALLS = 10, 60
FEWEST_CALLS = 3
MIN_WARMUP, MAX_WARMUP = 4, 16
WARMUP_SECONDS = 5.0
STEADY = 0.10
VERIFIED_CALLS = 2
SEVERAL_RIGHT = 8
AHEAD_BYTES = 256 * 1024**2
"""Most memory that input sets drawn ahead may take beside those of the pair that runs."""
POOL_BYTES = 512 * 1024**2
"""Most memory that the input sets of one pair may take in the judge."""


def calls_per_block(reference_seconds: float, candidate_seconds: float, input_bytes: int, budget: float) -> int:
    """Calls of each arm in a pair, fixed before the candidate is timed.

    They follow from the reference's time. The candidate's time in the trials only counts where it is so slow that the
    pairs of the first look would not fit into half of the ``budget``: then there are fewer.
    """
    wanted = BLOCK_SECONDS / max(reference_seconds, 1e-6)
    fitting = POOL_BYTES // max(1, input_bytes)
    calls = max(MIN_CALLS, min(MAX_CALLS, wanted, fitting))
    affordable = budget / 2 / LOOKS[0] / max(reference_seconds + candidate_seconds, 1e-6) - MIN_WARMUP
    return int(max(FEWEST_CALLS, min(calls, affordable)))


class OutOfTime(Undecided):
    """The budget ended before there was anything to say about speed."""


@dataclass(frozen=True)
class Draw:
    """One input set of the timed shape; the oracle is asked only if its call is verified."""

    arguments: list[Args]
    encoded: list[Encoded]

    @property
    def input_bytes(self) -> int:
        return max(rank.size for rank in self.encoded)

    def bytes_of_all_ranks(self) -> int:
        return sum(rank.size for rank in self.encoded)


@dataclass
class Side:
    """One arm in a pair."""

    launch: Launch
    ring: Ring
    calls: list[Call] = field(default_factory=list)

    @property
    def foreign(self) -> bool:
        """True for the arm that runs the submission."""
        return self.launch.arm.name != "reference"

    @property
    def batch(self) -> Batch:
        """Its timed calls by both clocks."""
        claimed = [call.seconds if call.claimed is None else call.claimed for call in self.calls]
        return Batch([call.seconds for call in self.calls], claimed)


@dataclass
class Comparison:
    """Runs pairs until the verdict is clear. ``budget``: seconds that are left for it."""

    problem: Problem
    case: Case
    reference: Arm
    candidate: Arm
    partitions: list[Partition]
    source_bytes: int
    target_bytes: int
    names: list[str]
    calls: int
    limits: Limits
    budget: float
    noop: Batch
    """Calls that do nothing, for the band in which the clocks must agree."""
    progress: Callable[[int, int, str], None]
    verified: Callable[[TrialResult, int | None], None]
    """Takes the result of each verified timed call, and the number of an earlier call with the same output if there is
    one; raises Fault if it is wrong."""
    rule: BlockRule = BLOCK_RULES["cpu"]
    source: Literal["judge", "events"] = "judge"
    """Whose times the samples are."""
    cache_bytes: int = 0
    states: Callable[[], tuple[Gpu, ...]] | None = None
    """Looks at the GPUs."""
    first_call_seconds: float = 0.0
    """Budget of the reference's first call in a launch, where it compiles itself; 0: that of any call."""
    pairs: list[BlockPair] = field(default_factory=list)
    ratios: list[float] = field(default_factory=list)
    medians: list[float] = field(default_factory=list)
    batches: dict[bool, list[Batch]] = field(default_factory=lambda: {False: [], True: []})
    """Blocks of the pairs by both clocks: of the reference (False) and of the candidate (True)."""
    skews: dict[bool, list[float]] = field(default_factory=lambda: {False: [], True: []})
    trains: list[throughput.Train] = field(default_factory=list)
    warmup: int = 0
    scheduled: float = 0.0
    look: Look = field(default_factory=lambda: Look(0, 0.0, 0.0))
    _deadline: float = math.inf
    _voids: Voids = field(init=False)
    _digests: dict[bytes, int] = field(default_factory=dict)
    _number: int = 0
    _apart_but_right: int = 0

    def __post_init__(self) -> None:
        self._ahead: Ahead[Draw] = Ahead(
            self._draw, wanted=self.calls + MIN_WARMUP, size=Draw.bytes_of_all_ranks, room=AHEAD_BYTES
        )

    def run(self) -> tuple[Timing, Decision]:
        """Pairs, looks and the decision.

        Raises OutOfTime if the budget ends before the second pair, Fault if the candidate fails, HarnessFault if the
        reference does.
        """
        self._deadline = time.monotonic() + self.budget
        self._voids = Voids(self.rule, self.states)
        looks = 0
        decision: Decision | None = None
        for last in LOOKS:
            while len(self.ratios) < last and self._time_for_another():
                self._measure(last)
            if len(self.ratios) < 2:
                raise OutOfTime(f"Two pairs of blocks do not fit into the {self.budget:.0f} s that there are.")
            looks += 1
            self.look = Look.at(self.ratios)
            decision = self.look.verdict(math.fsum(self.medians) / len(self.medians))
            if decision is not None or len(self.ratios) < last or self.look.hopeless(LOOKS[-1]):
                break
        return self._timing(self.look, looks), decision or Decision.TIE

    def _time_for_another(self) -> bool:
        """True unless another pair would probably end after the deadline."""
        done = len(self.pairs) + len(self.voided)
        if done == 0:
            return True
        left = self._deadline - time.monotonic()
        return (self.budget - left) / done < left

    def _measure(self, last: int) -> None:
        """One more pair, void if it was disturbed. Raises Disturbed if too many were."""
        self.progress(len(self.ratios), last, f"pair {len(self.ratios) + 1} of at most {LOOKS[-1]}")
        self._voids.look()
        sides = self._pair()
        pair = self._as_pair(sides)
        if self._voids.take(pair, len(self.pairs)):
            return
        self.pairs.append(pair)
        for side in sides:
            self.batches[side.foreign].append(side.batch)
            self.skews[side.foreign] += [call.skew for call in side.calls]
        self.ratios.append(math.log(self.rule.value(pair.reference) / self.rule.value(pair.candidate)))
        self.medians.append(math.log(median(pair.reference) / median(pair.candidate)))

    @property
    def voided(self) -> list[BlockPair]:
        """Pairs that did not count."""
        return self._voids.pairs

    def _pair(self) -> list[Side]:
        """One launch of both arms and their calls; in everything chance decides who comes first."""
        reference_first = secrets.randbelow(2) == 0
        arms = (self.reference, self.candidate) if reference_first else (self.candidate, self.reference)
        with ExitStack() as stack:
            sides = [Side(stack.enter_context(self._launch(arm)), Ring(self.source_bytes)) for arm in arms]
            try:
                self._calls(sides)
            finally:
                self.scheduled += sum(side.launch.scheduled for side in sides)
        return sides

    def _as_pair(self, sides: list[Side]) -> BlockPair:
        """The samples of a pair: the judge's times, or what the device's events say."""
        blocks = {side.foreign: side.batch for side in sides}
        reference, candidate = (
            tuple(blocks[foreign].judged if self.source == "judge" else blocks[foreign].claimed)
            for foreign in (False, True)
        )
        return BlockPair(reference=reference, candidate=candidate, reference_first=not sides[0].foreign)

    def _launch(self, arm: Arm) -> Launch:
        launch = Launch(
            arm, self.partitions, source_bytes=self.source_bytes, target_bytes=self.target_bytes, diagnose=fault_of
        )
        launch.meanwhile = self._ahead.use  # inputs of later calls, drawn in pauses of either arm alike
        return launch

    def _calls(self, sides: list[Side]) -> None:
        draws = [self._ahead.take() for _ in range(self.calls)]  # while the ranks start
        for side in sides:
            side.launch.load(self.names, self.limits.ready)
        self._warm_up(sides)
        # Chosen now and kept here: to the candidate that is the same as after the call.
        chosen = set(secrets.SystemRandom().sample(range(self.calls), min(VERIFIED_CALLS, self.calls)))
        for index, drawn in enumerate(draws):
            self._number += 1
            made: dict[bool, tuple[Side, int, Call]] = {}
            for side in sides if secrets.randbelow(2) == 0 else reversed(sides):
                start = side.ring.place(drawn.input_bytes)
                call = self._call(side, drawn, start)
                side.calls.append(call)
                made[side.foreign] = side, start, call
                self._examine(side, drawn, start, call, must_verify=index in chosen)
            self._hold_together(drawn, made[False], made[True])
        if len(self.trains) < throughput.TRAINS:
            self._train(sides, draws)

    def _train(self, sides: list[Side], draws: list[Draw]) -> None:
        """Calls back to back in both arms, behind the timed ones; each arm's last output is verified in full."""
        sets = throughput.sets_that_fit(self.source_bytes, [drawn.input_bytes for drawn in draws])
        plan = throughput.plan(self._reference_seconds(sides), sets, reusable=not self._changes_inputs)
        if plan is None or time.monotonic() + self._costs(sides, plan) > self._deadline:
            return
        chosen = secrets.SystemRandom().sample(draws, plan.sets)
        seconds = {}
        for side in sides:
            starts = [side.ring.place(drawn.input_bytes) for drawn in chosen]
            side.launch.stock([d.encoded for d in chosen], starts, self.limits.ready, Phase.TIMING)
            replaced = [self.names.index(name) for name in self.problem.replaces]
            call = side.launch.train(plan.calls, replaced, self.limits.call * plan.calls, Phase.TIMING)
            last = (plan.calls - 1) % plan.sets
            try:
                self._verify(side, chosen[last], starts[last], call, f"call {plan.calls} of a train")
            except Fault as fault:
                fault.code, fault.normalised = Code.RACE, "wrong back to back"
                fault.message = f"Right when called one by one, wrong when called back to back. {fault.message}"
                raise
            seconds[side.foreign] = call.seconds
        self.trains.append(throughput.Train(plan.calls, self.warmup + self.calls, seconds[False], seconds[True]))

    def _reference_seconds(self, sides: list[Side]) -> float:
        return next(self.rule.value(side.batch.judged) for side in sides if not side.foreign)

    def _costs(self, sides: list[Side], plan: throughput.Plan) -> float:
        return plan.calls * sum(self.rule.value(side.batch.judged) for side in sides)

    @property
    def _changes_inputs(self) -> bool:
        return bool(self.problem.may_mutate or self.problem.replaces)

    def _draw(self) -> Draw:
        arguments = self.problem.inputs(self.case, Rng(new_seed(), self.case.world_size))
        return Draw(arguments, [encode(rank, self.partitions, self.problem.replaces) for rank in arguments])

    def _warm_up(self, sides: list[Side]) -> None:
        """Calls both arms the same number of times, until the times of both are steady."""
        times: list[list[float]] = [[] for _ in sides]
        for count in range(1, MAX_WARMUP + 1):
            drawn = self._ahead.take()
            for side, samples in zip(sides, times, strict=True):
                start = side.ring.place(drawn.input_bytes)
                seconds = self.first_call_seconds if count == 1 and not side.foreign else 0.0
                samples.append(self._call(side, drawn, start, seconds).seconds)
            if count >= MIN_WARMUP and (_steady(times) or sum(map(math.fsum, times)) > WARMUP_SECONDS):
                break
        self.warmup = max(self.warmup, count)

    def _call(self, side: Side, drawn: Draw, start: int, seconds: float = 0.0) -> Call:
        if time.monotonic() > self._deadline:
            raise OutOfTime(f"A pair of blocks does not fit into the {self.budget:.0f} s that there are.")
        limit = seconds or self.limits.call
        return side.launch.call(drawn.encoded, start, perturb=0, seconds=limit, phase=Phase.TIMING)

    def _examine(self, side: Side, drawn: Draw, start: int, call: Call, *, must_verify: bool) -> None:
        """Verifies the call in full if it was chosen, or if its output is that of an earlier call with other inputs.

        The reference is treated in just the same way: work of the judge that follows the calls of one arm only would
        slow the other or speed it up (by 2 % in a call of 2 ms, when it was so).
        """
        mark = digest(side.launch, call)
        earlier = self._digests.setdefault(mark, self._number) if side.foreign else self._number
        if must_verify or earlier != self._number:
            repeated = None if earlier == self._number else earlier
            self._verify(side, drawn, start, call, f"timed call {self._number}", repeated)

    def _hold_together(self, drawn: Draw, ours: tuple[Side, int, Call], theirs: tuple[Side, int, Call]) -> None:
        """Holds each timed call against the reference's with the same inputs; verifies in full what differs.

        A program whose right results do differ, since a problem has several, is verified in some of its calls only
        once it has been right SEVERAL_RIGHT times.
        """
        apart = distance(
            (ours[0].launch, ours[2]), (theirs[0].launch, theirs[2]), self.problem.tolerance(self.case.dtype)
        )
        side, start, call = theirs
        spoilt = changed(side.launch, drawn.encoded, start) - {*self.problem.may_mutate}
        changed(ours[0].launch, drawn.encoded, ours[1])  # the same work after the calls of both
        if not spoilt and (apart <= 1.0 or (self._apart_but_right >= SEVERAL_RIGHT and secrets.randbelow(4) > 0)):
            return
        self._verify(side, drawn, start, call, f"timed call {self._number}")
        self._apart_but_right += 1

    def _verify(self, side: Side, drawn: Draw, start: int, call: Call, name: str, earlier: int | None = None) -> None:
        """Checks a call in full. ``earlier``: number of an earlier call with the same output."""
        expected = self.problem.oracle(self.case, drawn.arguments)
        trial = Trial(name, self.case, drawn.arguments, drawn.encoded, expected, self.problem.replaces)
        result = examine(self.problem, trial, side.launch, call, start, self.limits.call, Phase.TIMING)
        if side.foreign:
            self.verified(result, earlier)
        elif not result.passed:
            raise HarnessFault(f"The reference fails in {trial.name}: {result.sentences()}")

    def _timing(self, look: Look, looks: int) -> Timing:
        half = look.half_width(LOOK_CONFIDENCE)
        warnings = []
        if look.pairs < LOOKS[0]:
            warnings.append(f"Only {look.pairs} pairs fitted into the budget of {self.budget:.0f} s.")
        warnings += self._voids.warnings
        if half > statistics.WIDE:
            warnings.append(f"The decision interval is wide: ± {math.expm1(half):.0%}.")
        return Timing(
            pairs=tuple(self.pairs),
            calls_per_block=self.calls,
            warmup_calls=self.warmup,
            void_blocks=len(self.voided),
            looks=looks,
            decision_interval=look.interval(LOOK_CONFIDENCE),
            smallest_detectable=look.smallest_detectable(LOOKS[-1]),
            reference_seconds=median([self.rule.value(p.reference) for p in self.pairs]),
            candidate_seconds=median([self.rule.value(p.candidate) for p in self.pairs]),
            reference_skew_seconds=median(self.skews[False]),
            candidate_skew_seconds=median(self.skews[True]),
            rotated_bytes=self.source_bytes * self.case.world_size,
            cache_bytes=self.cache_bytes,
            clock=self._clock(),
            throughput=throughput.summary(self.trains),
            warnings=tuple(warnings),
        )

    def _clock(self) -> ClockCheck:
        """Whether the candidate's own clock agrees with the judge's as the reference's does."""
        value = self.rule.value
        band = crosscheck.calibrate(self.noop, self.batches[False], value)
        reference, candidate = (
            median([batch.difference(value) for batch in self.batches[foreign]]) for foreign in (False, True)
        )
        return ClockCheck(
            source=self.source,
            noop_seconds=band.noop,
            low=band.low,
            high=band.high,
            reference=reference,
            candidate=candidate,
            agrees=band.holds(candidate),
        )


def _steady(arms: list[list[float]]) -> bool:
    """True if in each arm the last two windows of two calls agree."""
    windows = [(min(samples[-4:-2]), min(samples[-2:])) for samples in arms]
    return all(abs(now - before) <= STEADY * before for before, now in windows)
