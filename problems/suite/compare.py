"""Whether a delivered tensor is the expected one: the rules of base.py as pure functions, for judge and ``check``."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from problems.suite.base import ELEMENT, Close, Exact, Free, Leaf, Tolerance, Valid

LARGEST_ERROR = 1e30  # what is reported for an error without measure: infinite, or relative to an oracle of zeros


@dataclass(frozen=True)
class Comparison:
    """Result for one tensor. ``bad`` marks the refused elements; None where the rule knows none (``Valid``)."""

    passed: bool
    ratio: float = 0.0
    """Largest error in units of what is allowed: at most 1 if passed; infinite where an exact rule refuses."""
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
        return Comparison(not message, ratio=math.inf if message else 0.0, message=message)
    if isinstance(rule, Exact) or not (value.is_floating_point() or value.is_complex()):
        signed = rule.signed_zeros if isinstance(rule, Exact) else True
        return _exact(leaf, value, signed_zeros=signed)
    return _close(leaf, value, tolerance)


def _exact(leaf: Leaf, value: torch.Tensor, *, signed_zeros: bool) -> Comparison:
    """Bit for bit, the payload of NaN too, where the oracle has moved values of the run dtype and not computed them."""
    expected = leaf.value.to(leaf.dtype)
    if value.numel() == 0:
        return Comparison(True, bad=torch.zeros(value.shape, dtype=torch.bool))
    if signed_zeros and leaf.value.dtype == leaf.dtype:
        bad = (_bits(expected) != _bits(value)).view(*value.shape, -1).any(dim=-1)
    else:
        bad = ~_equal(expected, value, signed_zeros=signed_zeros)
    failed = bool(bad.any())
    return Comparison(not failed, ratio=math.inf if failed else 0.0, bad=bad)


def _equal(expected: torch.Tensor, value: torch.Tensor, *, signed_zeros: bool) -> torch.Tensor:
    if value.is_complex():
        expected, value = torch.view_as_real(expected.resolve_conj()), torch.view_as_real(value.resolve_conj())
        return _equal(expected, value, signed_zeros=signed_zeros).all(dim=-1)
    if value.is_floating_point() and value.element_size() == 1:  # float8 knows no comparison
        expected, value = expected.float(), value.float()
    same = expected == value
    if value.is_floating_point():
        same |= expected.isnan() & value.isnan()
        if signed_zeros:
            same &= expected.isnan() | (torch.signbit(expected) == torch.signbit(value))
    return same


def _bits(value: torch.Tensor) -> torch.Tensor:
    """The bytes of every element, flattened."""
    return value.resolve_conj().contiguous().view(-1).view(torch.uint8)


def limits(leaf: Leaf, tolerance: Tolerance) -> Tolerance:
    """What the leaf's Close rule allows: its own values, or the problem's where it has none."""
    rule = leaf.rule
    assert isinstance(rule, Close)
    if rule.units is None and rule.relative is None and rule.rms is None:
        return tolerance
    elements = ELEMENT * rule.rms if rule.rms is not None else 0.0
    return Tolerance(
        units=elements if rule.units is None else rule.units,
        relative=elements if rule.relative is None else rule.relative,
        rms=math.inf if rule.rms is None else rule.rms,
    )


def allowed_error(leaf: Leaf, tolerance: Tolerance, rms: torch.Tensor) -> torch.Tensor:
    """Largest error that the Close rule allows, per element (over the rms axis): units * rms + relative * |o|.

    Half the smallest step of the dtype comes on top: no output can be nearer to an oracle below its range than that.
    ``rms``: the leaf's ``scale``, which is costly for large outputs.
    """
    own = limits(leaf, tolerance)
    return own.units * rms + own.relative * _finite(leaf.value).abs() + _smallest_step(leaf.dtype) / 2


def allowed_rms(leaf: Leaf, tolerance: Tolerance, rms: torch.Tensor) -> torch.Tensor:
    """Largest rms error that the Close rule allows: one number, or one per slice along the rule's axis."""
    own = limits(leaf, tolerance)
    slices = max(1, rms.numel())
    few = 1.0 + 2.0 / math.sqrt(max(1.0, leaf.value.numel() / slices))
    return own.rms * few * rms + _smallest_step(leaf.dtype) / 2


def scale(leaf: Leaf) -> torch.Tensor:
    """rms(oracle) over its finite elements, float64: one number, or one per slice along the rule's axis."""
    return _rms(leaf, _finite(leaf.value).abs(), torch.isfinite(leaf.value))


def _rms(leaf: Leaf, x: torch.Tensor, counted: torch.Tensor) -> torch.Tensor:
    """rms of x over the counted elements, in the slices of the leaf's rule (kept as axes of length one)."""
    squares = torch.where(counted, x, 0.0).square()
    axis = leaf.rule.axis if isinstance(leaf.rule, Close) else None
    if axis is None or squares.ndim == 0:
        return (squares.sum() / counted.sum().clamp(min=1)).sqrt()
    others = [d for d in range(squares.ndim) if d != axis % squares.ndim]
    if not others:
        return squares.sqrt()
    return (squares.sum(dim=others, keepdim=True) / counted.sum(dim=others, keepdim=True).clamp(min=1)).sqrt()


def _close(leaf: Leaf, value: torch.Tensor, tolerance: Tolerance) -> Comparison:
    expected = leaf.value
    if expected.numel() == 0:
        return Comparison(True, max_error=0.0, bad=torch.zeros(expected.shape, dtype=torch.bool))
    received = value.to(expected.dtype)
    rounded = expected.to(leaf.dtype).to(expected.dtype)  # overflows where the output's dtype must
    special = ~torch.isfinite(rounded)
    matches = (rounded == received) | (rounded.isnan() & received.isnan())
    error = (received - expected).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    error = torch.where(special, torch.where(matches, 0.0, math.inf), error)
    rms = scale(leaf)
    of_elements = error / allowed_error(leaf, tolerance, rms)
    allowed = allowed_rms(leaf, tolerance, rms)
    of_whole = _rms(leaf, error, ~special) / allowed
    bad = ~(of_elements <= 1.0) | (~(of_whole <= 1.0) & (error > allowed))
    largest = float((error / rms).nan_to_num(nan=0.0).max())  # 0 / 0: right where the whole oracle is zero
    message = ""
    if not bool((of_whole <= 1.0).all()):
        message = f"rms error {float(of_whole.max()):.3g} times the allowed one"
    return Comparison(
        not bool(bad.any()) and not message,
        ratio=max(float(of_elements.max()), float(of_whole.max())),
        max_error=min(largest, LARGEST_ERROR),
        bad=bad,
        message=message,
    )


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
