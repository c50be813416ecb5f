"""Whether a delivered tensor is the expected one: the rules of problems.suite.base, as pure functions."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from problems.suite.base import Close, Exact, Free, Leaf, Tolerance, Valid

LARGEST_ERROR = 1e30  # what is reported for an error without measure: infinite, or relative to an oracle of zeros


@dataclass(frozen=True)
class Comparison:
    """Result for one tensor. ``bad`` marks the refused elements; None where the rule knows none (``Valid``)."""

    passed: bool
    max_error: float | None = None
    """Largest error in units of rms(oracle), for ``Close`` only."""
    bad: torch.Tensor | None = None
    message: str = ""

    @property
    def bad_fraction(self) -> float:
        if self.bad is None or self.bad.numel() == 0:
            return 0.0 if self.passed else 1.0
        return float(self.bad.double().mean())


def compare(leaf: Leaf, value: torch.Tensor, tolerance: Tolerance) -> Comparison:
    """Compares a tensor of the expected shape and dtype with the oracle's leaf.

    ``tolerance``: the calibrated one of the problem, for ``Close`` rules that bring none of their own.
    """
    rule = leaf.rule
    if isinstance(rule, Free):
        return Comparison(True)
    if isinstance(rule, Valid):
        message = rule.check(value)
        return Comparison(not message, message=message)
    if isinstance(rule, Exact) or not (value.is_floating_point() or value.is_complex()):
        signed = rule.signed_zeros if isinstance(rule, Exact) else True
        return _exact(leaf, value, signed_zeros=signed)
    return _close(leaf, rule, value, tolerance)


def _exact(leaf: Leaf, value: torch.Tensor, *, signed_zeros: bool) -> Comparison:
    """Bit for bit, the payload of NaN too, where the oracle has moved values of the run dtype and not computed them."""
    expected = leaf.value.to(leaf.dtype)
    if signed_zeros and leaf.value.dtype == leaf.dtype:
        bad = _bits(expected) != _bits(value)
        bad = bad.view(*value.shape, -1).any(dim=-1)
        return Comparison(not bool(bad.any()), bad=bad)
    if value.is_complex():
        expected, value = torch.view_as_real(expected.resolve_conj()), torch.view_as_real(value.resolve_conj())
    if value.is_floating_point() and value.element_size() == 1:  # float8 knows no comparison
        expected, value = expected.float(), value.float()
    same = expected == value
    if value.is_floating_point():
        same |= expected.isnan() & value.isnan()
        if signed_zeros:
            same &= expected.isnan() | (torch.signbit(expected) == torch.signbit(value))
    bad = ~same
    return Comparison(not bool(bad.any()), bad=bad)


def _bits(value: torch.Tensor) -> torch.Tensor:
    """The bytes of every element, flattened."""
    return value.contiguous().view(-1).view(torch.uint8)


def allowed_error(leaf: Leaf, tolerance: Tolerance) -> torch.Tensor:
    """Largest error that the Close rule allows, per element: units * rms + relative * |o|.

    Half the smallest step of the dtype comes on top: no output can be nearer to an oracle below its range than that.
    """
    rule = leaf.rule
    assert isinstance(rule, Close)
    units = tolerance.units if rule.units is None else rule.units
    relative = tolerance.relative if rule.relative is None else rule.relative
    magnitude = _finite(leaf.value).abs()
    return units * scale(leaf) + relative * magnitude + _smallest_step(leaf.dtype) / 2


def scale(leaf: Leaf) -> torch.Tensor:
    """rms(oracle) over its finite elements, float64: one number, or one per slice along the rule's axis."""
    finite = torch.isfinite(leaf.value)
    squares = _finite(leaf.value).abs().square()
    axis = leaf.rule.axis if isinstance(leaf.rule, Close) else None
    if axis is None or squares.ndim == 0:
        return (squares.sum() / finite.sum().clamp(min=1)).sqrt()
    others = [d for d in range(squares.ndim) if d != axis % squares.ndim]
    if not others:
        return squares.sqrt()
    counts = finite.sum(dim=others, keepdim=True).clamp(min=1)
    return (squares.sum(dim=others, keepdim=True) / counts).sqrt()


def _close(leaf: Leaf, rule: Close, value: torch.Tensor, tolerance: Tolerance) -> Comparison:
    expected = leaf.value
    if expected.numel() == 0:
        return Comparison(True, max_error=0.0, bad=torch.zeros(expected.shape, dtype=torch.bool))
    received = value.to(expected.dtype)
    rounded = expected.to(leaf.dtype).to(expected.dtype)  # overflows where the output's dtype must
    special = ~torch.isfinite(rounded)
    matches = (rounded == received) | (rounded.isnan() & received.isnan())
    error = (received - expected).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    bad = torch.where(special, ~matches, ~(error <= allowed_error(leaf, tolerance)))
    units = torch.where(special & matches, 0.0, error) / scale(leaf)
    largest = float(units.nan_to_num(nan=0.0).max())  # 0 / 0: right where the whole oracle is zero
    return Comparison(not bool(bad.any()), max_error=min(largest, LARGEST_ERROR), bad=bad)


def error_of(leaf: Leaf, value: torch.Tensor) -> torch.Tensor:
    """|value - oracle| in float64, infinite where only one of them is finite."""
    return (value.to(leaf.value.dtype) - leaf.value).abs().nan_to_num(nan=math.inf, posinf=math.inf)


def publicly_close(value: torch.Tensor, reference: torch.Tensor) -> bool:
    """The public rule: same shape, and allclose after conversion to float at 1e-2 relative and absolute."""
    if value.shape != reference.shape:
        return False
    if value.is_complex() or reference.is_complex():
        return torch.allclose(value.to(torch.complex64), reference.to(torch.complex64), rtol=1e-2, atol=1e-2)
    return torch.allclose(value.float(), reference.float(), rtol=1e-2, atol=1e-2)


def _finite(value: torch.Tensor) -> torch.Tensor:
    return torch.where(torch.isfinite(value), value, torch.zeros_like(value))


def _smallest_step(dtype: torch.dtype) -> float:
    """Distance of the smallest positive number of the dtype from zero."""
    info = torch.finfo(dtype)
    return info.smallest_normal * info.eps
