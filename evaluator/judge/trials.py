"""Correctness trials: calls with secret inputs, every output checked in full."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from evaluator.contract import Phase
from evaluator.judge.checks import RankCheck, check, take
from evaluator.judge.launch import Call, Launch
from evaluator.judge.layout import Encoded, Partition, encode, partitions_of
from evaluator.judge.structure import leaves
from evaluator.runner.values import aligned
from problems.suite.base import Args, Case, Expected, Problem, Rng

PUBLIC_TRIALS = 5
OUTPUT_SLACK = 64 * 1024


@dataclass(frozen=True)
class Trial:
    """One drawn input set with what every rank must deliver."""

    name: str
    case: Case
    arguments: list[Args]
    encoded: list[Encoded]
    expected: list[Expected]
    replaced: tuple[str, ...] = ()
    """``Problem.replaces``: arguments that are delivered behind the output."""

    @property
    def input_bytes(self) -> int:
        """Bytes of the largest rank's arguments."""
        return max(rank.size for rank in self.encoded)

    @property
    def output_bytes(self) -> int:
        """Bytes of the largest rank's outputs."""
        return max(output_bytes(expected, self.replaced) for expected in self.expected)


@dataclass
class TrialResult:
    """How an arm did in one trial."""

    trial: Trial
    checks: list[RankCheck]
    seconds: float = 0.0
    """The judge's time of the call."""
    late: bool = False
    """Right only when read again 50 ms later: something was still writing when the call had returned."""
    unstable: bool = False
    """Right at the end of the call, wrong 50 ms later."""

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks) and not self.unstable

    def sentences(self) -> list[str]:
        """What is wrong, without values of the case."""
        if self.late or self.unstable:
            return ["right only when read again 50 ms later" if self.late else "changed after the call had returned"]
        found = [sentence for check in self.checks for sentence in check.structure]
        refused = [entry for check in self.checks for entry in check.refused]
        if refused:
            worst = max(comparison.bad_fraction for _, _, comparison in refused)
            found.append(f"up to {worst:.2%} of a tensor's elements are bad")
        return list(dict.fromkeys(found))

    @property
    def structure_ok(self) -> bool:
        return not any(check.structure for check in self.checks)


def output_bytes(expected: Expected, replaced: Sequence[str] = ()) -> int:
    """Room that the outputs of one rank need in its output region, with the arguments that are ``replaced``."""
    delivered = (expected.output, [expected.mutated[name] for name in replaced])
    return sum(aligned(leaf.value.numel() * leaf.dtype.itemsize) for leaf in leaves(delivered))


def new_seed() -> int:
    """A 64-bit seed that nobody but the judge knows."""
    return secrets.randbits(64)


def secret_generator() -> torch.Generator:
    """A generator of secret choices, e.g. of hidden shapes."""
    return torch.Generator().manual_seed(secrets.randbits(63))


def cases_of(problem: Problem, *, world_size: int, dtype: torch.dtype, device: str) -> list[tuple[str, Case]]:
    """All trials of one evaluation: the public shape PUBLIC_TRIALS times, then every other case of the problem."""
    cases = problem.cases(world_size=world_size, dtype=dtype, device=device, secret=secret_generator())
    public = [case for case in cases if case.kind == "public"]
    others = [case for case in cases if case.kind != "public"]
    return [(f"public {n}", public[0]) for n in range(1, PUBLIC_TRIALS + 1)] + [(case.name, case) for case in others]


def draw(problem: Problem, name: str, case: Case, partitions: list[Partition]) -> Trial:
    """Draws inputs with a fresh secret seed and computes what they must give. New partitions are added to the list."""
    arguments = problem.inputs(case, Rng(new_seed(), case.world_size))
    for partition in partitions_of(arguments):
        if partition not in partitions:
            partitions.append(partition)
    encoded = [encode(rank, partitions, problem.replaces) for rank in arguments]
    return Trial(name, case, arguments, encoded, problem.oracle(case, arguments), problem.replaces)


class Ring:
    """Hands out slots of the input regions one after the other, so that addresses change from call to call."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._next = 0

    def place(self, wanted: int) -> int:
        """Start of a slot of ``wanted`` bytes. Raises ValueError if the regions are smaller than that."""
        if wanted > self.size:
            raise ValueError(f"a slot of {wanted} bytes in regions of {self.size}")
        start = self._next if self._next + wanted <= self.size else 0
        self._next = start + aligned(wanted)
        return start


def run(problem: Problem, trial: Trial, launch: Launch, ring: Ring, seconds: float, phase: Phase) -> TrialResult:
    """One trial: a call in memory filled with a random pattern, then ``examine``."""
    return run_at(problem, trial, launch, ring.place(trial.input_bytes), seconds, phase)


def run_at(problem: Problem, trial: Trial, launch: Launch, start: int, seconds: float, phase: Phase) -> TrialResult:
    """``run`` with the arguments at that place of the input regions."""
    call = launch.call(trial.encoded, start, perturb=1 + secrets.randbelow(255), seconds=seconds, phase=phase)
    return examine(problem, trial, launch, call, start, seconds, phase)


def examine(
    problem: Problem, trial: Trial, launch: Launch, call: Call, start: int, seconds: float, phase: Phase
) -> TrialResult:
    """Checks a call that has just ended: its outputs as they stood then, and the same outputs after a pause."""
    first = take(launch, call, trial.encoded, start, in_place=problem.may_mutate)
    again = launch.read_again(seconds, phase)
    second = take(launch, again, trial.encoded, start, in_place=problem.may_mutate)
    result = TrialResult(trial, check(problem, trial.case, trial.expected, first), call.seconds)
    if all(one.same_as(other) for one, other in zip(first, second, strict=True)):
        return result
    later = check(problem, trial.case, trial.expected, second)
    result.late = not result.passed and all(c.passed for c in later)
    result.unstable = result.passed and not all(c.passed for c in later)
    if result.unstable:
        result.checks = later
    return result


def largest(trials: Sequence[Trial]) -> tuple[int, int]:
    """Bytes of the largest input and of the largest output of one rank over all trials."""
    return max(t.input_bytes for t in trials), max(t.output_bytes for t in trials)
