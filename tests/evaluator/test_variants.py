"""Trials with a single change: what is changed, that the result must show it, and that every reference follows."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
import torch

from evaluator.judge.trials import Trial, draw
from evaluator.judge.variants import Variant, variants
from problems.suite import battery, registry, trees
from problems.suite.ranks import Ranks

RANKS = 4
FEW = (1, 2, 13, 27, 36, 73)


def drawn(number: int) -> tuple[Trial, list[Variant]]:
    """The trial that is changed and what it is changed into, on the shape of the suite's own checks."""
    problem = registry.get(number)
    case = problem.check_case(world_size=RANKS, dtype=torch.float32)
    partitions: list[tuple[tuple[int, ...], ...]] = []
    base, other = (draw(problem, f"public {n}", case, partitions) for n in (1, 2))
    return base, variants(problem, base, other, partitions)


def named(made: list[Variant], name: str) -> Trial:
    return next(variant.trial for variant in made if variant.name == name)


def differences(base: Trial, changed: Trial) -> dict[tuple[int, str], int]:
    """How many elements of which argument of which rank are others."""
    found = {}
    for rank, (before, after) in enumerate(zip(base.arguments, changed.arguments, strict=True)):
        for name, value in before.items():
            pairs = zip(trees.tensors(value), trees.tensors(after[name]), strict=True)
            count = sum(int((old != new).sum()) for old, new in pairs)
            if count:
                found[rank, name] = count
    return found


@pytest.mark.parametrize("number", FEW)
def test_each_change_is_the_one_that_is_named(number: int) -> None:
    base, made = drawn(number)
    names = [variant.name for variant in made]
    assert names[:2] == ["one rank", "one element"]
    assert len({rank for rank, _ in differences(base, named(made, "one rank"))}) == 1
    assert list(differences(base, named(made, "one element")).values()) == [1]
    if "factor" in names:
        problem = registry.get(number)
        assert {name for _, name in differences(base, named(made, "factor"))} == set(problem.linear)


@pytest.mark.parametrize("number", FEW)
def test_the_result_before_a_change_of_one_element_would_be_refused_after_it(number: int) -> None:
    base, made = drawn(number)
    after = named(made, "one element")
    tolerance = registry.get(number).tolerance(torch.float32)
    stale = battery.delivered(base.expected)
    ratios = [
        max(battery.ratios(expected, result, tolerance).values(), default=0.0)
        for expected, result in zip(after.expected, stale, strict=True)
    ]
    assert max(ratios) > 3


@pytest.fixture(scope="module")
def group() -> Iterator[Ranks]:
    with Ranks(RANKS) as ranks:
        yield ranks


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(entry.id, id=entry.slug, marks=() if entry.id in FEW else pytest.mark.nightly)
        for entry in registry.entries()
    ],
)
def test_every_reference_follows_every_change(number: int, group: Ranks) -> None:
    """A submission is not refused for what the reference cannot do either, but a probe that finds nothing is none."""
    problem = registry.get(number)
    if problem.world_size_rule(RANKS, problem.check_sizes or problem.cpu_sizes):
        pytest.skip("not defined for four ranks")
    for variant in drawn(number)[1]:
        results = group.call(number, battery.fresh(variant.trial.arguments))
        assert not any(result.error for result in results), results
        for expected, result in zip(variant.trial.expected, results, strict=True):
            ratios = battery.ratios(expected, result, problem.tolerance(torch.float32))
            assert max(ratios.values(), default=0.0) <= 1.0, (variant.change, ratios)
            assert not any(math.isnan(ratio) for ratio in ratios.values())
