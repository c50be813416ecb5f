"""Axes on which times and ratios stand with their units, however many decades they cover."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from leaderboard.figures import seconds_text
from leaderboard.plots import axis

_FINE = (0.2, 0.3, 0.4, 0.5, 0.6, 0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0)
_COARSE = (0.001, 0.01, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1_000.0)


def time_axis(title: str, seconds: Iterable[float], **options: Any) -> dict[str, Any]:
    """A logarithmic axis with a tick a decade, written as "10 µs"; ``seconds`` are the values that must fit."""
    values = [value for value in seconds if value > 0] or [1e-3]
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    ticks = [10.0**power for power in range(low, high + 1)]
    labels = [seconds_text(tick).replace(".00", "").replace(".0", "") for tick in ticks]
    return axis(title, type="log", tickmode="array", tickvals=ticks, ticktext=labels, **options)


def ratio_axis(title: str, ratios: Iterable[float], **options: Any) -> dict[str, Any]:
    """A logarithmic axis of speedups with round ticks, written as "1.5×"; ``ratios`` are the values that must fit."""
    values = [value for value in ratios if value > 0]
    low, high = min([0.9, *values]) / 1.1, max([1.1, *values]) * 1.1
    steps = _FINE if high / low < 8 else _COARSE
    ticks = [tick for tick in steps if low <= tick <= high]
    return axis(
        title,
        type="log",
        range=[math.log10(low), math.log10(high)],
        tickmode="array",
        tickvals=ticks,
        ticktext=[f"{tick:g}×" for tick in ticks],
        **options,
    )
