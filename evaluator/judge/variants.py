"""Trials made from another one by a single change: one rank's numbers, one element, a common factor.

What a changed trial must give is the oracle of its inputs, so it is checked like any other.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from evaluator.judge.layout import Partition, encode
from evaluator.judge.trials import Trial
from problems.suite import trees
from problems.suite.base import Args, Problem
from problems.suite.compare import compare

EXPONENTS = (-7, -5, -3, 3, 5, 7)
EDITS = (4.0, 32.0, 256.0)
"""Sizes of a changed element, in units of the rms of its tensor; the first that is seen in the result is taken."""
EDIT_MARGIN = 3.0
"""How many times the allowed error the oracle must move by, or the edit would show nothing."""
EDIT_TRIES = 4
EDIT_SECONDS = 30.0
"""After this long no further edit is put to the oracle: large shapes take it seconds each."""


@dataclass(frozen=True)
class Variant:
    """A trial made from another one by one change, in words."""

    name: str
    change: str
    trial: Trial


def variants(problem: Problem, base: Trial, other: Trial, partitions: list[Partition]) -> list[Variant]:
    """The changed trials that the problem allows. ``other`` is a trial of the same case that gives new numbers."""
    chance = random.SystemRandom()
    made = (
        _one_rank(problem, base, other, partitions, chance),
        _one_element(problem, base, partitions, chance),
        _factor(problem, base, partitions, chance),
    )
    return [variant for variant in made if variant is not None]


def _changed(problem: Problem, base: Trial, partitions: list[Partition], arguments: list[Args]) -> Trial:
    encoded = [encode(rank, partitions, problem.replaces) for rank in arguments]
    return Trial("changed", base.case, arguments, encoded, problem.oracle(base.case, arguments), base.replaced)


@dataclass(frozen=True)
class _Place:
    """A tensor among the arguments of a rank: an argument itself, or an entry of a list or tuple."""

    name: str
    entry: int | None
    tensor: torch.Tensor

    def put(self, arguments: Args, tensor: torch.Tensor) -> None:
        """Puts another tensor there; the list that holds it is made anew."""
        if self.entry is None:
            arguments[self.name] = tensor
        else:
            old = arguments[self.name]
            arguments[self.name] = type(old)([*old[: self.entry], tensor, *old[self.entry + 1 :]])

    def same_place(self, arguments: Args) -> torch.Tensor | None:
        """The tensor of the same shape there in other arguments; None if there is none."""
        value = arguments[self.name]
        if self.entry is not None:
            value = value[self.entry] if self.entry < len(value) else None
        fits = isinstance(value, torch.Tensor) and value.shape == self.tensor.shape
        return value if fits else None


def _places(problem: Problem, arguments: Args) -> Iterator[_Place]:
    """Every tensor of a rank that may be changed."""
    for name, value in arguments.items():
        if name in problem.replicated:
            continue
        if _are_numbers(value):
            yield _Place(name, None, value)
        elif type(value) in (list, tuple):
            yield from (_Place(name, index, item) for index, item in enumerate(value) if _are_numbers(item))


def _are_numbers(value: Any) -> bool:
    """True for dense tensors of real numbers; masks of ones and zeros are none."""
    return (
        isinstance(value, torch.Tensor)
        and value.layout is torch.strided
        and value.is_floating_point()
        and value.element_size() > 1  # float8 knows no arithmetic
        and value.numel() > 0
        and not torch.equal(value, value.round())
    )


def _one_rank(
    problem: Problem, base: Trial, other: Trial, partitions: list[Partition], chance: random.Random
) -> Variant | None:
    rank = chance.randrange(len(base.arguments))
    changed = dict(base.arguments[rank])
    for place in _places(problem, base.arguments[rank]):
        new = place.same_place(other.arguments[rank])
        if new is not None:
            place.put(changed, new)
    if all(changed[name] is value for name, value in base.arguments[rank].items()):
        return None
    arguments = [*base.arguments[:rank], changed, *base.arguments[rank + 1 :]]
    trial = _changed(problem, base, partitions, arguments)
    return Variant("one rank", f"the inputs of rank {rank} had changed and nothing else", trial)


def _one_element(problem: Problem, base: Trial, partitions: list[Partition], chance: random.Random) -> Variant | None:
    """An edit that the result must show; None if none of some tries is seen in it."""
    places = [(rank, place) for rank, own in enumerate(base.arguments) for place in _places(problem, own)]
    deadline = time.monotonic() + EDIT_SECONDS
    for rank, place in chance.sample(places, min(EDIT_TRIES, len(places))):
        index = chance.randrange(place.tensor.numel())
        for size in EDITS:
            if time.monotonic() > deadline:
                return None
            arguments = [dict(own) for own in base.arguments]
            place.put(arguments[rank], _with_element(place.tensor, index, size * chance.choice((-1.0, 1.0))))
            trial = _changed(problem, base, partitions, arguments)
            if _shows(problem, base, trial):
                words = f"one element of {place.name} on rank {rank} had changed and nothing else"
                return Variant("one element", words, trial)
    return None


def _with_element(value: torch.Tensor, index: int, units: float) -> torch.Tensor:
    """A copy, with the same strides, in which one element is ``units`` times the rms of the tensor larger."""
    edited = value.detach().clone(memory_format=torch.preserve_format)
    place = tuple(int(i) for i in torch.unravel_index(torch.tensor(index), value.shape)) if value.ndim else ()
    edited[place] += units * float(value.detach().double().square().mean().sqrt())
    return edited.requires_grad_(value.requires_grad)


def _shows(problem: Problem, base: Trial, changed: Trial) -> bool:
    """True if the result before the change would be refused after it, by a margin, on some rank."""
    tolerance = problem.tolerance(base.case.dtype)
    for before, after in zip(base.expected, changed.expected, strict=True):
        for (_, old), (_, new) in zip(trees.leaves(before), trees.leaves(after), strict=True):
            if old.value.shape != new.value.shape:
                continue
            comparison = compare(new, old.value.to(old.dtype), tolerance)
            if not comparison.passed and comparison.ratio > EDIT_MARGIN:
                return True
    return False


def _factor(problem: Problem, base: Trial, partitions: list[Partition], chance: random.Random) -> Variant | None:
    if not problem.linear:
        return None
    exponent = chance.choice(EXPONENTS)
    factor = 2.0**exponent
    arguments = [
        {name: value * factor if name in problem.linear else value for name, value in rank.items()}
        for rank in base.arguments
    ]
    for before, after in zip(base.arguments, arguments, strict=True):
        for name in problem.linear:
            if not torch.equal(after[name] / factor, before[name]):  # out of the range of the dtype
                return None
    trial = _changed(problem, base, partitions, arguments)
    return Variant("factor", f"{', '.join(problem.linear)} had been multiplied by 2^{exponent} on all ranks", trial)
