"""fp8 with delayed scaling: the round trip of the references, its exact values in float64, and the draws."""

from __future__ import annotations

from typing import Tuple

import torch

from problems.suite.base import Case, Rng, wide

FP8_LARGEST = 448.0
HISTORY = 16


def fp8_round_trip(x: torch.Tensor, amax_history: torch.Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """x through float8 E4M3 and back, in its own dtype, with one scale; and the history with x's maximum added."""
    amax = x.abs().max().to(amax_history.dtype)
    history = torch.cat([amax_history[1:], amax.reshape(1)])
    # The scale follows the largest entry of the new history.
    largest = history.max().to(torch.float32).clamp(min=1e-12)
    # By a tensor: CUDA divides by a Python number by way of its reciprocal, which rounds twice.
    scale = largest / torch.full_like(largest, FP8_LARGEST)
    codes = (x.to(torch.float32) / scale).to(torch.float8_e4m3fn)
    return (codes.to(torch.float32) * scale).to(x.dtype), history


def true_history(x: torch.Tensor, amax_history: torch.Tensor) -> torch.Tensor:
    """The history after the call, in float64."""
    newest = x.abs().max().to(torch.float32).to(torch.bfloat16)
    return torch.cat([wide(amax_history[1:]), wide(newest).reshape(1)])


def true_round_trip(x: torch.Tensor, amax_history: torch.Tensor) -> torch.Tensor:
    """Code times scale in float64: exact, for code (4 bits) and scale (24 bits) are given numbers."""
    scale = float32_quotient(true_history(x, amax_history).max().clamp(min=1e-12), FP8_LARGEST)
    return fp8(wide(x) / scale) * scale


def float32_quotient(x: torch.Tensor, y: float) -> torch.Tensor:
    """x / y as float32 holds it; the quotient in float64 before rounding leaves the result the same."""
    return wide((x / torch.full_like(x, y)).to(torch.float32))


def fp8(x: torch.Tensor) -> torch.Tensor:
    """float64 values rounded to float8 E4M3, beyond 448 to 448."""
    return wide(x.clamp(-FP8_LARGEST, FP8_LARGEST).to(torch.float32).to(torch.float8_e4m3fn))


DELAYED_DRAWS = {
    "fresh": "structured: no history, the scale follows the present values",
    "settled": "structured: the history is above the present values on every rank",
    "silent": "structured: the last rank has only zeros and an empty history",
    "outlier": "stress: one element is a thousand times the others, which get subnormal codes",
    "small": "stress: values scaled by 1e-3",
    "large": "stress: values scaled by 1e3",
}


def delayed(case: Case, rng: Rng, r: int, elements: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Normal values and a history of maxima, at a scale of the rank's own; returns (x in the run dtype, history).

    The history is below the present maximum on even ranks and above it on odd ones; its oldest entry is the largest by
    far and must drop out. Elements whose code would depend on the rounding of the division (within 1e-5) are zero.
    """
    scale = (0.5, 2.0, 0.75, 1.0)[r % 4] * {"small": 1e-3, "large": 1e3}.get(case.draw, 1.0)
    x = rng.normal(r, (elements,), std=scale)
    above = case.draw == "settled" or (r % 2 == 1 and case.draw != "outlier")
    history = scale * ((5.0 + 3.0 * rng.uniform(r, (HISTORY,))) if above else (0.5 + 2.0 * rng.uniform(r, (HISTORY,))))
    history[0] = 16.0 * scale
    if case.draw == "fresh":
        history = torch.full((HISTORY,), 1e-8)
    if case.draw == "outlier":
        x[int(rng.integers(r, 0, elements - 1, ()))] = 1e3 * scale
    if case.draw == "silent" and r == case.world_size - 1:
        x, history = torch.zeros(elements), torch.zeros(HISTORY)
    values, kept = x.to(case.dtype), history.to(torch.bfloat16)
    return _away_from_ties(values, kept), kept


def _away_from_ties(x: torch.Tensor, amax_history: torch.Tensor) -> torch.Tensor:
    scale = float32_quotient(true_history(x, amax_history).max().clamp(min=1e-12), FP8_LARGEST)
    quotient = wide(x) / scale
    return torch.where(fp8(quotient * (1 - 1e-5)) == fp8(quotient * (1 + 1e-5)), x, 0.0)
