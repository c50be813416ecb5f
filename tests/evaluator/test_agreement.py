"""Timed calls of both arms held against each other: right results always agree, wrong ones never do."""

from __future__ import annotations

import math
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from evaluator.judge.agreement import distance
from evaluator.judge.frames import Node, SequenceNode, TensorNode, ValueNode
from evaluator.judge.layout import Region
from evaluator.runner.values import aligned
from problems.suite.base import Tolerance, calibrated

TOLERANCE = calibrated()[torch.float32]


@pytest.fixture
def side() -> Iterator[Any]:
    """Makes one rank's end with tensors in its output region, and the call that delivered them."""
    regions = []

    def make(*values: torch.Tensor) -> Any:
        region = Region(1 << 20)
        regions.append(region)
        nodes: list[Node] = []
        offset = 0
        for value in values:
            shape = tuple(value.shape)
            nodes.append(TensorNode(value.dtype, shape, "torch.Tensor", "cpu", "strided", False, False, None, offset))
            size = value.numel() * value.element_size()
            region.bytes[offset : offset + size] = value.contiguous().view(-1).view(torch.uint8)
            offset = aligned(offset + size)
        launch = SimpleNamespace(ends=[SimpleNamespace(target=region)])
        return launch, SimpleNamespace(outputs=(SequenceNode("tuple", tuple(nodes)),))

    yield make
    for region in regions:
        region.close()


def apart(side: Any, one: torch.Tensor, other: torch.Tensor, tolerance: Tolerance = TOLERANCE) -> float:
    return distance(side(one), side(other), tolerance)


def test_two_right_results_agree(side: Any) -> None:
    x = torch.randn(100, 100)
    off = torch.randn(100, 100) * TOLERANCE.rms
    assert apart(side, x + off, x - off.flip(0)) <= 1.0
    assert apart(side, x, x) == 0.0
    assert distance(side(), side(), TOLERANCE) == 0.0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda x: x.half().float(),
        lambda x: torch.zeros_like(x),
        lambda x: x.roll(1, 0),
        lambda x: torch.cat([x[:99], torch.zeros(1, 100)]),
        lambda x: torch.cat([x[:99], torch.full((1, 100), torch.nan)]),
        lambda x: x.double(),
        lambda x: x.flatten(),
    ],
)
def test_a_wrong_result_does_not(side: Any, spoil: Any) -> None:
    x = torch.randn(100, 100)
    assert apart(side, x, spoil(x)) > 1.0


def test_infinities_and_nan_must_sit_in_the_same_places(side: Any) -> None:
    x = torch.randn(50)
    x[3], x[4] = torch.inf, torch.nan
    assert apart(side, x, x * (1 + 1e-6)) <= 1.0
    assert apart(side, x, x.nan_to_num()) == math.inf
    other = x.clone()
    other[[3, 4]] = other[[4, 3]]
    assert apart(side, x, other) == math.inf


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_integers_agree_when_they_are_the_same(side: Any, dtype: torch.dtype) -> None:
    x = torch.arange(10).to(dtype)
    assert apart(side, x, x.clone()) == 0.0
    assert apart(side, x, x.flip(0)) == math.inf


def test_the_number_of_tensors_counts(side: Any) -> None:
    x = torch.randn(4)
    assert distance(side(x), side(x, x), TOLERANCE) == math.inf
    launch, call = side(x)
    call.outputs = (ValueNode(None),)
    assert distance(side(x), (launch, call), TOLERANCE) == math.inf


def test_tolerances_without_a_bound_on_the_whole_still_bound_it(side: Any) -> None:
    x = torch.randn(100, 100)
    loose = Tolerance(units=1e-3, relative=1e-3)
    assert apart(side, x, x * (1 + 1e-3), loose) <= 1.0
    assert apart(side, x, x * 1.01, loose) > 1.0
