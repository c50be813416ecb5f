"""How many calls back to back, and of what: the choices of ``judge.soak``. What it finds is in kernels/."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from evaluator.judge.soak import FEWEST_CALLS, MOST_CALLS, SOAK_SECONDS, _sequence, calls_for
from evaluator.judge.trials import Trial, draw
from problems.suite import registry
from problems.suite.base import Case

MiB = 1024**2


@pytest.fixture(scope="module")
def trials() -> list[Trial]:
    problem = registry.get(1)
    public = Case("public", 2, torch.float32, {"M": 4, "N": 4})
    hidden = Case("hidden", 2, torch.float32, {"M": 3, "N": 5}, kind="hidden")
    return [*(draw(problem, f"public {n}", public, []) for n in range(5)), draw(problem, "hidden", hidden, [])]


@pytest.mark.parametrize(
    ("call_seconds", "output_bytes", "calls"),
    [
        (1e-4, 1000, MOST_CALLS),
        (SOAK_SECONDS / 40, 1000, 21),
        (1.0, 1000, FEWEST_CALLS),
        (1e-4, 12 * MiB, 21),
        (0.0, 0, MOST_CALLS),
    ],
)
def test_slow_and_large_calls_are_made_less_often_and_always_an_odd_number_of_times(
    call_seconds: float, output_bytes: int, calls: int
) -> None:
    assert calls_for(call_seconds, output_bytes) == calls
    assert calls % 2 == 1


def test_no_trial_comes_twice_in_a_row_and_shapes_change(trials: list[Trial]) -> None:
    """The data of the call before must be wrong for the next one, and buffers must be taken for another shape."""
    sequence = _sequence(trials, 400, random.Random(1))
    assert all(one is not other for one, other in itertools.pairwise(sequence))
    shapes = [trial.case.kind for trial in sequence]
    assert 200 < shapes.count("public") < 390
    assert len({id(trial) for trial in sequence}) == len(trials)


def test_a_problem_without_other_cases_repeats_the_public_ones(trials: list[Trial]) -> None:
    assert len(_sequence(trials[:5], 50, random.Random(1))) == 50
