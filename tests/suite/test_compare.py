"""The comparison: what each rule lets pass and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch

from problems.suite.base import Close, Exact, Leaf, Rule, Tolerance, Valid, calibrated
from problems.suite.battery import narrowed
from problems.suite.compare import compare

BF16 = calibrated()[torch.bfloat16]
ORACLE = torch.randn(40, 50, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def _passes(oracle: torch.Tensor, value: torch.Tensor, rule: Rule, tolerance: Tolerance = BF16) -> bool:
    return compare(Leaf(oracle, value.dtype, rule), value, tolerance).passed


def test_rounding_passes_and_a_lower_precision_does_not() -> None:
    rounded = ORACLE.to(torch.bfloat16)
    assert _passes(ORACLE, rounded, Close())
    comparison = compare(Leaf(ORACLE, torch.bfloat16), narrowed(rounded), BF16)
    assert not comparison.passed
    assert 1.5 < comparison.ratio < 4
    assert "rms error" in comparison.message


def test_one_wrong_element_is_enough() -> None:
    value = ORACLE.to(torch.bfloat16)
    value[7, 7] += 0.5
    comparison = compare(Leaf(ORACLE, torch.bfloat16), value, BF16)
    assert not comparison.passed
    assert comparison.bad is not None
    assert comparison.bad.nonzero().tolist() == [[7, 7]]


@pytest.mark.parametrize("special", [math.nan, math.inf, -math.inf])
def test_special_values_must_sit_where_the_oracle_has_them(special: float) -> None:
    oracle = ORACLE.clone()
    oracle[3, 4] = special
    value = oracle.to(torch.bfloat16)
    assert _passes(oracle, value, Close())
    assert not _passes(ORACLE, value, Close())
    assert not _passes(oracle, ORACLE.to(torch.bfloat16), Close())


def test_axis_gives_every_slice_its_own_scale() -> None:
    oracle = ORACLE * torch.logspace(-4, 0, 40, dtype=torch.float64)[:, None]
    value = oracle.to(torch.bfloat16)
    value[0] = 0  # the faintest row is lost
    assert _passes(oracle, value, Close())
    assert not _passes(oracle, value, Close(axis=0))
    assert _passes(oracle, oracle.to(torch.bfloat16), Close(axis=0))


def test_own_limits_of_a_leaf_replace_those_of_the_problem() -> None:
    value = (ORACLE * 1.02).to(torch.bfloat16)
    assert not _passes(ORACLE, value, Close())
    assert _passes(ORACLE, value, Close(rms=4e-2))
    assert _passes(ORACLE, value, Close(units=1e-2, relative=3e-2))


def test_exact_compares_bits_of_moved_values_and_values_of_computed_ones() -> None:
    moved = torch.tensor([0x7FC1, 0x0000], dtype=torch.int16).view(torch.bfloat16)
    payload = torch.tensor([0x7FC2, 0x0000], dtype=torch.int16).view(torch.bfloat16)
    negative_zero = torch.tensor([0x7FC1, -0x8000], dtype=torch.int16).view(torch.bfloat16)
    assert _passes(moved, moved.clone(), Exact())
    assert not _passes(moved, payload, Exact())
    assert not _passes(moved, negative_zero, Exact())
    assert _passes(moved.double(), payload, Exact())
    assert _passes(moved.double(), negative_zero, Exact(signed_zeros=False))


def test_integers_and_booleans_are_exact_whatever_the_rule() -> None:
    oracle = torch.tensor([1, 2, 300])
    assert _passes(oracle, oracle.clone(), Close())
    assert not _passes(oracle, torch.tensor([1, 2, 301]), Close())
    assert not _passes(torch.tensor([True, False]), torch.tensor([True, True]), Close())


def test_validity_rule_says_what_is_wrong() -> None:
    rule = Valid(lambda value: "" if int(value.sum()) == 3 else f"sums to {int(value.sum())}")
    assert _passes(torch.tensor([1, 2]), torch.tensor([2, 1]), rule)
    assert compare(Leaf(torch.tensor([1, 2]), torch.int64, rule), torch.tensor([2, 2]), BF16).message == "sums to 4"


def test_empty_and_zero_outputs_can_be_right() -> None:
    assert _passes(torch.zeros(0, 3, dtype=torch.float64), torch.zeros(0, 3), Close())
    assert _passes(torch.zeros(0, 3), torch.zeros(0, 3), Exact())
    assert _passes(torch.zeros(5, dtype=torch.float64), torch.zeros(5), Close())
    assert not _passes(torch.zeros(5, dtype=torch.float64), torch.full((5,), 1e-6), Close())
