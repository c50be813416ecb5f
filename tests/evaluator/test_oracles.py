"""Oracles and comparisons on another device give what they give on the CPU, and go back there where they must."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from evaluator.judge.oracles import WORTH_THE_WAY, OnDevice, compare_there, with_oracle_on
from problems.suite import trees
from problems.suite.base import Args, Case, Expected, Leaf, Rng, Valid
from problems.suite.registry import get

CPU = torch.device("cpu")


def posed(number: int) -> tuple[OnDevice, Case, list[Args]]:
    problem = get(number)
    case = problem.check_case(world_size=2, dtype=torch.bfloat16)
    return OnDevice(number, problem.oracle, CPU), case, problem.inputs(case, Rng(7, 2))


@pytest.mark.parametrize("number", [13, 40, 68])  # a product, modules and lists, sparse tensors
def test_the_way_there_and_back_changes_nothing(number: int) -> None:
    there, case, arguments = posed(number)
    pairs = zip(there(case, arguments), there.oracle(case, arguments), strict=True)
    for one, other in pairs:
        for (path, leaf), (name, wanted) in zip(trees.leaves(one), trees.leaves(other), strict=True):
            assert path == name
            assert torch.equal(leaf.value, wanted.value)
    assert there.refusal == ""


def test_an_oracle_that_cannot_run_there_is_asked_here(caplog: pytest.LogCaptureFixture) -> None:
    there, case, arguments = posed(13)
    there.device = torch.device("meta")  # tensors without values: nothing can be fetched from it
    (first, *_) = there(case, arguments)
    assert torch.equal(first.output.value, there.oracle(case, arguments)[0].output.value)
    assert there.refusal
    assert "problem 13 runs on the CPU" in caplog.text


def test_rules_that_hold_tensors_stay_here() -> None:
    def oracle(case: Case, arguments: list[Args]) -> list[Expected]:
        return [Expected(Leaf(torch.ones(2), torch.float32, Valid(lambda value: "")))]

    there = OnDevice(1, oracle, CPU)
    _, case, arguments = posed(13)
    assert isinstance(there(case, arguments)[0].output.rule, Valid)
    assert "validity" in there.refusal


def test_the_problem_of_a_cpu_target_is_untouched() -> None:
    assert with_oracle_on(get(1), "cpu") is get(1)


@pytest.mark.parametrize("wrong", [False, True])
def test_large_tensors_are_compared_there(wrong: bool) -> None:
    problem = replace(get(13), oracle=OnDevice(13, get(13).oracle, CPU))
    value = torch.randn(WORTH_THE_WAY)
    leaf = Leaf(value.double(), torch.float32)
    delivered = value.clone()
    delivered[5] += 100.0 * wrong
    found = compare_there(problem, leaf, delivered, problem.tolerance(torch.float32))
    assert found.passed is not wrong
    assert found.bad_fraction == wrong / WORTH_THE_WAY
