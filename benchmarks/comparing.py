"""Paired comparisons without a submission: the judge's own timing of two versions of a reference.

Everything is the judge's (arms, launches, calls, looks, decision); only the correctness phases are left out, so that
hundreds of comparisons are affordable. A version is the reference itself, or the reference slowed by a known factor:
every rank waits for a share of the reference's time when its call is done.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch

from evaluator import targets
from evaluator.contract import BlockPair, Code, Limits, Phase
from evaluator.judge import timing, trials
from evaluator.judge.arm import Arm
from evaluator.judge.crosscheck import Batch
from evaluator.judge.diagnosis import fault_of
from evaluator.judge.evaluation import PILOT_CALLS, rotated_bytes
from evaluator.judge.faults import Fault
from evaluator.judge.hardware import hardware_of
from evaluator.judge.launch import Launch
from evaluator.judge.oracles import with_oracle_on
from evaluator.judge.statistics import BLOCK_RULES, SHOWN_CONFIDENCE, undisturbed
from evaluator.judge.trials import Ring, Trial, TrialResult
from evaluator.judge.voids import Undecided
from problems.suite import registry
from problems.suite.reference import reference_source

BUDGET = 300.0
SLOWED = """

import ctypes as _ctypes
import time as _time

import torch as _torch

_unslowed = solution
_ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK: wake after 1 ns, not after 50 µs


def solution(*arguments):
    output = _unslowed(*arguments)
    if _torch.cuda.is_available():
        _torch.cuda.synchronize()
    end = _time.perf_counter() + {seconds!r}
    if {seconds!r} > 100e-6:
        _time.sleep({seconds!r} - 60e-6)
    while _time.perf_counter() < end:
        pass
    return output
"""
"""A rank that waits when its call is done: mostly asleep, and exact to the microsecond. (A pause before the call would
be filled by other ranks where they share CPUs.)"""


@dataclass(frozen=True)
class Setting:
    """What is compared with itself: a problem, in its public shape or in the small one of ``check``."""

    problem: int
    world_size: int
    small: bool = False
    target: str = "cpu-gloo"

    @classmethod
    def parse(cls, label: str, target: str = "cpu-gloo") -> Setting:
        """From "13/4" or, for the small shape, "13/4s". Raises ValueError for anything else."""
        problem, _, ranks = label.partition("/")
        return cls(int(problem), int(ranks.removesuffix("s")), ranks.endswith("s"), target)

    @property
    def label(self) -> str:
        return f"{self.problem}/{self.world_size}{'s' if self.small else ''}"


@dataclass(frozen=True)
class Effect:
    """How much longer one arm takes, as a share of the reference's time; 0 in an A/A comparison."""

    share: float = 0.0
    slower: str = ""
    """"candidate" or "reference"."""
    seconds: float = 0.0
    """The share of a call, as a time."""

    @property
    def expected(self) -> str:
        return {"": "tie", "candidate": "slower", "reference": "faster"}[self.slower]


def compare(setting: Setting, effect: Effect = Effect()) -> dict[str, Any]:
    """One comparison in fresh sandboxes, as a row for a file of JSON lines; times in microseconds."""
    started, load = time.monotonic(), os.getloadavg()[0]
    with ExitStack() as stack:
        bench = Bench(setting, stack)
        pilot, noop = bench.pilot()
        source = reference_source(bench.problem)
        for arm in (bench.reference, bench.candidate):
            arm.submit(source + SLOWED.format(seconds=effect.seconds) if arm.name == effect.slower else source)
        row = {
            "problem": setting.problem,
            "world_size": setting.world_size,
            "setting": setting.label,
            "target": setting.target,
            "share": effect.share,
            "slower": effect.slower,
            "slowed_us": round(effect.seconds * 1e6, 1),
        }
        comparison = bench.comparison(pilot, noop)
        try:
            measured, decision = comparison.run()
        except Undecided as reason:
            return {**row, "decision": "none", "why": str(reason), "void": [_row(pair) for pair in comparison.voided]}
    shown = comparison.look.interval(SHOWN_CONFIDENCE)
    clock, trains = measured.clock, measured.throughput
    assert clock is not None
    return {
        **row,
        "decision": str(decision),
        "estimate": round(shown.estimate, 5),
        "interval": [round(shown.low, 5), round(shown.high, 5)],
        "smallest_detectable": round(measured.smallest_detectable, 5),
        "reference_us": round(measured.reference_seconds * 1e6, 1),
        "back_to_back": trains and round(trains.reference_seconds / trains.candidate_seconds, 4),
        "clock_us": [round(x * 1e6, 1) for x in (clock.low, clock.high, clock.reference, clock.candidate)],
        "clocks_agree": clock.agrees,
        "noop_us": round(clock.noop_seconds * 1e6, 1),
        "calls": measured.calls_per_block,
        "pairs": [_row(pair) for pair in comparison.pairs],
        "void": [_row(pair) for pair in comparison.voided],
        "load": [round(load, 2), round(os.getloadavg()[0], 2)],
        "seconds": round(time.monotonic() - started, 1),
    }


def _row(pair: BlockPair) -> dict[str, Any]:
    blocks = {"reference": pair.reference, "candidate": pair.candidate}
    samples = {name: [round(s * 1e6) for s in values] for name, values in blocks.items()}
    return {**samples, "reference_first": pair.reference_first}


class Bench:
    """Two arms on the reference, and what a comparison of them needs. ``stack`` ends the arms."""

    def __init__(self, setting: Setting, stack: ExitStack) -> None:
        torch.set_num_threads(1)  # as in the judge: idle threads of a pool would disturb the ranks
        self.target = targets.target(setting.target)
        device = self.target.device
        self.problem = with_oracle_on(registry.get(setting.problem), device)
        ranks, dtype = setting.world_size, torch.float32 if device == "cpu" else torch.bfloat16
        self.case = self.problem.public_case(world_size=ranks, dtype=dtype, device=device)
        if setting.small:
            self.case = self.problem.check_case(world_size=ranks, dtype=dtype)
        threads = targets.threads_per_rank(setting.world_size)
        hardware = hardware_of(self.target, ranks)
        arms = []
        for name in ("reference", "candidate"):
            arm = Arm(name, world_size=ranks, threads=threads, limits=hardware.limits, hardware=hardware)
            stack.callback(arm.stop)
            arms.append(arm)
        self.reference, self.candidate = arms
        self.trial = trials.draw(self.problem, "pilot", self.case, partitions := [])
        self.partitions = partitions
        cache = targets.last_level_cache_bytes(self.target)
        self.source_bytes = rotated_bytes(cache, self.trial.input_bytes, setting.world_size)
        self.target_bytes = 2 * self.trial.output_bytes + trials.OUTPUT_SLACK
        for arm in arms:
            arm.submit(reference_source(self.problem))
        for arm in arms:
            arm.wait_up()

    @property
    def names(self) -> list[str]:
        return list(self.trial.arguments[0])

    def pilot(self) -> tuple[float, Batch]:
        """Seconds of a call of the reference, and calls that do nothing, as the judge takes them before its trials."""
        launch = Launch(
            self.reference,
            self.partitions,
            source_bytes=self.source_bytes,
            target_bytes=self.target_bytes,
            diagnose=fault_of,
        )
        limits = Limits()
        with launch:
            launch.load(self.names, limits.ready)
            ring = Ring(self.source_bytes)
            calls = []
            for _ in range(PILOT_CALLS):
                start = ring.place(self.trial.input_bytes)
                calls.append(launch.call(self.trial.encoded, start, perturb=0, seconds=limits.call, phase=Phase.TRIALS))
            empty = [launch.nothing(limits.call, Phase.TRIALS) for _ in range(PILOT_CALLS)]
        noop = Batch([call.seconds for call in empty], [call.claimed or 0.0 for call in empty])
        return undisturbed([call.seconds for call in calls]), noop

    def comparison(
        self, pilot: float, noop: Batch, *, calls: int = 0, source: Literal["judge", "events", ""] = ""
    ) -> timing.Comparison:
        """A comparison of what the arms hold. ``calls`` in a block, ``source`` of times: as the judge, if not given."""
        input_bytes = sum(encoded.size for encoded in self.trial.encoded)
        return timing.Comparison(
            problem=self.problem,
            case=self.case,
            reference=self.reference,
            candidate=self.candidate,
            partitions=self.partitions,
            source_bytes=self.source_bytes,
            target_bytes=self.target_bytes,
            names=self.names,
            calls=calls or timing.calls_per_block(pilot, pilot, input_bytes, BUDGET),
            rule=BLOCK_RULES[self.target.device],
            source=source or ("judge" if self.target.device == "cpu" else "events"),
            cache_bytes=targets.last_level_cache_bytes(self.target),
            limits=Limits(),
            budget=BUDGET,
            noop=noop,
            progress=lambda done, total, note: None,
            verified=_must_pass,
        )


def _must_pass(result: TrialResult, earlier: int | None) -> None:
    if not result.passed:
        trial: Trial = result.trial
        raise Fault(Code.WRONG_VALUES, f"{trial.name}: {result.sentences()}")
