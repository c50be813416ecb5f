"""Charts of one model: where it stands by type among the others, and its runs over time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from leaderboard.figures import percent_text, ratio_text
from leaderboard.models import Track
from leaderboard.plots import SERIES, SYMBOLS, Head, Plot, axis


class TypeStanding(NamedTuple):
    """Correct problems of a type by the model, and the shares of the field: its median and its best run."""

    label: str
    correct: int
    problems: int
    median: float
    best: float


class PastRun(NamedTuple):
    """A run as a point in time."""

    at: datetime
    track: str
    address: str
    name: str
    target: str
    rate: float
    low: float
    high: float
    fast_1: float
    speedup: float


def against_field(types: Sequence[TypeStanding], *, runs: int, target: str) -> Plot | None:
    """Share of each type that the model's best run has correct, beside median and best of the field."""
    if not types or runs < 2:
        return None
    labels = [standing.label for standing in types]
    marks = (
        ("median", "median of the field", "line-ew-open", "--ink"),
        ("best", "best of the field", "star-open", "--t-expert"),
    )
    return Plot(
        key="field",
        title="By type against the field",
        says="; ".join(f"{t.label}: {t.correct} of {t.problems}, median {percent_text(t.median, 0)}" for t in types),
        note=f"Bars: this model's best run on {target}. Marks: the {runs} leading runs there.",
        help="by-type",
        traces=[
            {
                "type": "bar", "name": "this model", "x": labels,
                "y": [100 * t.correct / t.problems for t in types],
                "text": [f"{t.label}<br>{t.correct} of {t.problems} correct" for t in types],
                "textposition": "none", "hoverinfo": "text", "marker": {"color": "--accent"},
            },
            *(
                {
                    "type": "scatter", "mode": "markers", "name": label, "x": labels,
                    "y": [100 * getattr(t, part) for t in types],
                    "text": [f"{t.label}<br>{percent_text(getattr(t, part))} {label}" for t in types],
                    "hoverinfo": "text",
                    "marker": {"symbol": symbol, "size": 13, "color": colour, "line": {"width": 2.5, "color": colour}},
                }
                for part, label, symbol, colour in marks
            ),
        ],
        layout={
            "xaxis": axis("", type="category"),
            "yaxis": axis("Correct", range=[0, 104], ticksuffix=" %"),
        },
        heads=[
            Head("Type"), Head("Correct", numeric=True), Head("Share", numeric=True),
            Head("Median of the field", numeric=True), Head("Best of the field", numeric=True),
        ],
        rows=[
            [t.label, f"{t.correct}/{t.problems}", percent_text(t.correct / t.problems), percent_text(t.median),
             percent_text(t.best)]
            for t in types
        ],
    )  # fmt: skip


def history(runs: Sequence[PastRun]) -> Plot | None:
    """Correctness of the model's runs by the day on which they were sent; None for a single one."""
    if len(runs) < 2:
        return None
    ordered = sorted(runs, key=lambda run: run.at)
    traces = []
    for number, (track, label) in enumerate(Track.choices):
        shown = [run for run in ordered if run.track == track]
        if shown:
            traces.append(
                {
                    "type": "scatter", "mode": "markers", "name": label,
                    "x": [f"{run.at:%Y-%m-%d %H:%M}" for run in shown], "y": [100 * run.rate for run in shown],
                    "text": [
                        f"{run.at:%Y-%m-%d}, {label}<br>{percent_text(run.rate)} correct<br>{run.target}"
                        for run in shown
                    ],
                    "hoverinfo": "text",
                    "error_y": {
                        "type": "data", "symmetric": False, "thickness": 1, "width": 3, "color": "--muted",
                        "array": [100 * (run.high - run.rate) for run in shown],
                        "arrayminus": [100 * (run.rate - run.low) for run in shown],
                    },
                    "marker": {"color": SERIES[number], "symbol": SYMBOLS[number], "size": 9},
                }
            )  # fmt: skip
    return Plot(
        key="history",
        title="Runs over time",
        says=f"{len(ordered)} runs, correct from {percent_text(min(run.rate for run in ordered))} to "
        f"{percent_text(max(run.rate for run in ordered))}.",
        note="Share of the suite that is correct, with its 95 % interval, by the day on which the run was sent.",
        help="correct-fast_1-speedup",
        traces=traces,
        layout={
            "xaxis": axis("Sent", type="date", tickformat="%Y-%m-%d", nticks=6),
            "yaxis": axis("Correct", range=[0, 100], ticksuffix=" %"),
        },
        heads=[
            Head("Sent"), Head("Run"), Head("Track"), Head("Target"), Head("Correct", numeric=True),
            Head("95 % interval", numeric=True), Head("fast_1", numeric=True), Head("Speedup", numeric=True),
        ],
        rows=[
            [f"{run.at:%Y-%m-%d}", (run.name, run.address), Track(run.track).label, run.target, percent_text(run.rate),
             f"{percent_text(run.low, 0)} to {percent_text(run.high, 0)}", percent_text(run.fast_1),
             ratio_text(run.speedup)]
            for run in ordered
        ],
    )  # fmt: skip
