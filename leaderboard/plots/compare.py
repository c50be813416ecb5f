"""Charts of runs beside each other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from leaderboard.figures import ratio_text
from leaderboard.plots import SERIES, SYMBOLS, Head, Plot, axis
from leaderboard.plots.scales import ratio_axis
from problems.models import Problem

PATTERNS = ("", "/", "x", ".")


class Pair(NamedTuple):
    """A problem and the speedup of each side's correct answer, None without one."""

    problem: Problem
    speedups: list[float | None]


class TypeBar(NamedTuple):
    """A type, its number of problems, and (correct, faster) of each side."""

    label: str
    problems: int
    figures: list[tuple[int, int]]


def speedups(names: Sequence[str], pairs: Sequence[Pair]) -> Plot | None:
    """Speedups of the others against those of the first run, where both are correct; None where nothing is."""
    shared = [pair for pair in pairs if pair.speedups[0] and any(pair.speedups[1:])]
    if not shared:
        return None
    values = [speedup for pair in shared for speedup in pair.speedups if speedup]
    ends = [min(values) / 1.1, max(values) * 1.1]
    traces = []
    for number, name in enumerate(names[1:], start=1):
        both = [(p.problem, p.speedups[0], p.speedups[number]) for p in shared if p.speedups[number]]
        traces.append(
            {
                "type": "scatter", "mode": "markers", "name": name,
                "x": [first for _, first, _ in both], "y": [other for _, _, other in both],
                "text": [
                    f"{problem}<br>{names[0]}: {ratio_text(first)}<br>{name}: {ratio_text(other)}"
                    for problem, first, other in both
                ],
                "hoverinfo": "text",
                "marker": {"color": SERIES[number], "symbol": SYMBOLS[number], "size": 9, "opacity": 0.85},
            }
        )  # fmt: skip
    diagonal = {
        "type": "scatter", "mode": "lines", "name": "equally fast", "hoverinfo": "skip", "x": ends, "y": ends,
        "line": {"color": "--strong-line", "dash": "dash", "width": 1.5},
    }  # fmt: skip
    return Plot(
        key="speedups",
        title="Speedups against each other",
        says=f"{len(shared)} problems that {names[0]} and another run have correct.",
        note=f"Problems that both have correct. Above the line the other run is faster than {names[0]}.",
        help="comparing-runs",
        height=400,
        traces=[diagonal, *traces],
        layout={
            "xaxis": ratio_axis(f"Speedup of {names[0]}", values),
            "yaxis": ratio_axis("Speedup of the other", values),
        },
        heads=[Head("Problem"), *(Head(name, numeric=True) for name in names)],
        rows=[[str(pair.problem), *(ratio_text(speedup) for speedup in pair.speedups)] for pair in shared],
    )


def by_type(names: Sequence[str], bars: Sequence[TypeBar]) -> Plot | None:
    """Share of each type's problems that each run has correct."""
    if not bars:
        return None
    return Plot(
        key="types",
        title="Correct by type",
        says="; ".join(
            f"{bar.label}: {', '.join(str(correct) for correct, _ in bar.figures)} of {bar.problems}" for bar in bars
        )
        + ".",
        note="Share of the type's problems that are correct.",
        help="by-type",
        height=400,
        traces=[
            {
                "type": "bar", "name": name, "x": [bar.label for bar in bars],
                "y": [100 * bar.figures[number][0] / bar.problems for bar in bars],
                "text": [f"{name}<br>{bar.label}: {bar.figures[number][0]} of {bar.problems} correct" for bar in bars],
                "textposition": "none", "hoverinfo": "text",
                "marker": {"color": SERIES[number], "pattern": {"shape": PATTERNS[number], "solidity": 0.5}},
            }
            for number, name in enumerate(names)
        ],
        layout={
            "barmode": "group",
            "xaxis": axis("", type="category"),
            "yaxis": axis("Correct", range=[0, 100], ticksuffix=" %"),
        },
        heads=[
            Head("Type"), Head("Problems", numeric=True),
            *(Head(f"{name}: {what}", numeric=True) for name in names for what in ("correct", "faster")),
        ],
        rows=[
            [bar.label, str(bar.problems), *(str(value) for pair in bar.figures for value in pair)] for bar in bars
        ],
    )  # fmt: skip
