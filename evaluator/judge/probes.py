"""Probes: calls that ask for one thing that a correct submission does by itself.

- repeat: the same bytes twice; a wrong result is a race, since they were right in the trials.
- one rank, one element, factor (``judge.variants``): a single change, everything else as in the call before and at the
  same addresses. A result that is kept under a fingerprint of a part of the inputs stands still here.
- soak (``judge.soak``): calls back to back with ranks held up at random, which shows missing barriers.

What each must give is the oracle of the inputs. All choices are the judge's. A submission that a probe refuses is
refused only if the reference passes the same probe: where a change leaves what the problem is defined for, that is the
probe's mistake and not the submission's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch

from evaluator.contract import Code, Limits, Phase
from evaluator.judge.checks import RankCheck
from evaluator.judge.faults import Fault, HarnessFault, RankState, clip
from evaluator.judge.launch import Launch
from evaluator.judge.layout import Partition
from evaluator.judge.mistakes import mixed_calls
from evaluator.judge.soak import Soak, SoakResult
from evaluator.judge.trials import Trial, TrialResult, run_at
from evaluator.judge.variants import Variant, variants
from evaluator.judge.verdict import fault_of_trials, named
from problems.suite import trees
from problems.suite.base import Problem
from problems.suite.compare import compare

log = logging.getLogger(__name__)

_ORDER_HINT = (
    "Nothing but the submission keeps its ranks in step: before a rank writes memory that a peer reads, the peer must "
    "have read the data of the call before; before a rank reads, the peer must have written the data of this call."
)


@dataclass
class Setting:
    """What all probes of an evaluation share. ``call_seconds``: what a call of the candidate takes undisturbed."""

    problem: Problem
    trials: Sequence[Trial]
    limits: Limits
    call_seconds: float
    ranks: list[RankState]
    """Where patterns of errors are noted."""

    def call(self, launch: Launch, trial: Trial) -> TrialResult:
        """One call, verified; always at the first address of the input regions."""
        return run_at(self.problem, trial, launch, 0, self.limits.call, Phase.PROBES)

    def fault(self, results: Sequence[TrialResult]) -> Fault | None:
        """The fault that the first refused call shows; None if all passed."""
        return fault_of_trials(self.problem, results, self.ranks)


class Probe(Protocol):
    """One probe: ``run`` returns the fault that the launch shows, None if it passes; ``note`` says then what held."""

    name: str
    note: str
    always: bool
    """True if every correct program passes it, so that the reference must."""

    def run(self, launch: Launch) -> Fault | None: ...


def probes(setting: Setting, partitions: list[Partition]) -> list[Probe]:
    """The probes that the problem allows, in the order in which they are made."""
    base, other = setting.trials[:2]
    changed = variants(setting.problem, base, other, partitions)
    return [Repeat(setting), *(Follow(setting, variant) for variant in changed), BackToBack(setting)]


class Repeat:
    """The same bytes twice at the same addresses."""

    name = "repeat"
    always = True

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.note = ""
        self.deterministic = True

    def run(self, launch: Launch) -> Fault | None:
        results = [self.setting.call(launch, self.setting.trials[0]) for _ in range(2)]
        fault = self.setting.fault(results)
        if fault is not None:
            return _race_of_repeat(fault)
        self.deterministic = _bitwise_equal(*results)
        self.note = (
            "Repeated inputs give the same bits."
            if self.deterministic
            else "Repeated inputs give different bits within the tolerance."
        )
        return None


class Follow:
    """A call, and the same call with one change: the result must be that of the changed inputs."""

    always = False

    def __init__(self, setting: Setting, variant: Variant) -> None:
        self.setting = setting
        self.variant = variant
        self.name = variant.name
        self.note = f"The result followed when {variant.change}."

    def run(self, launch: Launch) -> Fault | None:
        base = self.setting.trials[0]
        before = self.setting.call(launch, base)
        if not before.passed:
            fault = self.setting.fault([before])
            assert fault is not None
            return _race_of_repeat(fault)
        after = self.setting.call(launch, self.variant.trial)
        fault = self.setting.fault([after])
        if fault is None:
            return None
        if all(_unmoved(self.setting.problem, base, check) for check in after.checks if not check.passed):
            return Fault(
                Code.WRONG_VALUES,
                f"When {self.variant.change}, the result was still that of the call before. Every call must compute "
                "from the bytes that it is given: the same addresses, shapes or sampled values do not make them the "
                "same bytes.",
                normalised=f"unmoved, {self.name}",
            )
        return replace(fault, message=f"When {self.variant.change}: {fault.message}")


class BackToBack:
    """Many calls without a pause between them, ranks held up at random."""

    name = "soak"
    always = True

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.note = ""

    def run(self, launch: Launch) -> Fault | None:
        setting = self.setting
        soak = Soak(
            launch,
            setting.problem,
            setting.trials,
            call_seconds=setting.call_seconds,
            limit=setting.limits.call,
        ).run()
        if soak.wrong is not None:
            return _race_of_soak(setting, soak)
        self.note = f"{soak.calls} calls back to back, with ranks held up at random, were right."
        return None


def blame(probe: Probe, reference: Launch, fault: Fault) -> bool:
    """Puts the reference to a probe that the candidate has failed: True if it passes, so that the fault counts.

    Raises HarnessFault where the reference fails what every correct program passes.
    """
    ours = probe.run(reference)
    if ours is None:
        return True
    if probe.always:
        raise HarnessFault(f"The reference fails the probe {probe.name!r}: {ours.message}")
    log.warning("probe %r left out, since the reference fails it too: %s; %s", probe.name, fault, ours)
    return False


def _race_of_repeat(fault: Fault) -> Fault:
    return Fault(
        Code.RACE,
        f"The same input gave a right result in the trials and a wrong one when it was repeated: {fault.message}",
        normalised="repeat differs",
    )


def _race_of_soak(setting: Setting, soak: SoakResult) -> Fault:
    assert soak.wrong is not None
    fault = setting.fault([soak.wrong])
    assert fault is not None
    failed = [check.rank for check in soak.wrong.checks if not check.passed]
    why = mixed_calls(setting.problem, soak.wrong, soak.before, soak.after)
    for rank in failed if why else ():
        setting.ranks[rank].pattern = clip(why)
    return Fault(
        Code.RACE,
        f"In {soak.calls} calls back to back, with ranks held up at random, call {soak.number} was wrong on "
        f"{named(failed)}, although the same inputs are right when all ranks stand still between the calls: "
        f"{why or fault.message}",
        hints=(_ORDER_HINT,),
        normalised=f"soak {why or fault.code}",
    )


def _unmoved(problem: Problem, base: Trial, check: RankCheck) -> bool:
    """True if what the rank delivered is what the unchanged inputs give."""
    leaves = [leaf for _, leaf in trees.leaves(base.expected[check.rank])]
    values = [value for _, value, _ in check.compared]
    if check.structure or [tuple(leaf.value.shape) for leaf in leaves] != [tuple(value.shape) for value in values]:
        return False
    tolerance = problem.tolerance(base.case.dtype)
    return all(compare(leaf, value, tolerance).passed for leaf, value in zip(leaves, values, strict=True))


def _bitwise_equal(first: TrialResult, second: TrialResult) -> bool:
    for one, other in zip(first.checks, second.checks, strict=True):
        for (_, a, _), (_, b, _) in zip(one.compared, other.compared, strict=True):
            if not torch.equal(a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8)):
                return False
    return True
