"""Cost models of all problems: figures that can be, in every draw, shape and run dtype."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from problems.suite import registry
from problems.suite.base import RUN_DTYPES, Args, Case, Problem, Rng
from problems.suite.check import figure_faults
from problems.suite.trees import map_args

ENTRIES = [pytest.param(entry, id=entry.slug) for entry in registry.entries()]
SEEDS = [1, *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(2, 8))]


def cases(problem: Problem, seed: int) -> Iterator[Case]:
    """Every draw at the small shape, and a shape drawn by the seed, with 2, 4 and 8 ranks."""
    hidden = problem.hidden_sizes(problem.check_sizes or problem.cpu_sizes, torch.Generator().manual_seed(seed))
    for world_size in (2, 4, 8):
        case = problem.check_case(world_size=world_size, dtype=torch.bfloat16)
        drawn = (case, replace(case, sizes=hidden), *(replace(case, draw=draw) for draw in problem.draws))
        for one in drawn:
            if not problem.world_size_rule(world_size, one.sizes) and not problem.skip_draw(one):
                yield one


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("entry", ENTRIES)
def test_no_floor_lies_above_what_is_sent_however_uneven_the_shares(entry: registry.Entry, seed: int) -> None:
    """A floor above it would call honest times impossible. Nor may ranks receive more than others send."""
    problem = registry.get(entry.id)
    for case in cases(problem, seed):
        costs = problem.cost(case, problem.inputs(case, Rng(seed, case.world_size)))
        assert figure_faults(costs) == [], (case, costs)


@pytest.mark.parametrize("entry", ENTRIES)
def test_no_flops_are_lost_in_another_run_dtype(entry: registry.Entry) -> None:
    """The same draw costs as many flops in every run dtype: units that become one are added."""
    problem = registry.get(entry.id)
    case = next(cases(problem, 1))
    args = problem.inputs(case, Rng(1, case.world_size))
    counted = []
    for dtype in RUN_DTYPES:
        recast: list[Args] = [
            map_args(own, lambda x, to=dtype: x.to(to) if x.dtype == case.dtype else x)  # type: ignore[misc]
            for own in args
        ]
        costs = problem.cost(replace(case, dtype=dtype), recast)
        counted.append([sum(cost.flops.values()) for cost in costs])
    for other in counted[1:]:
        assert all(map(math.isclose, counted[0], other))
