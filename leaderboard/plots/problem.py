"""Charts of one problem over the answers of all runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from leaderboard.figures import percent_text, ratio_text
from leaderboard.models import Verdict
from leaderboard.plots import Head, Plot, axis, line_at
from leaderboard.plots.scales import ratio_axis

MOST_BARS = 16
STEPS = (1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 10.0)


class Answer(NamedTuple):
    """A correct, timed answer: when its verdict came, and its speedup."""

    at: datetime
    speedup: float


def distribution(answers: Sequence[Answer]) -> Plot | None:
    """How many answers have which speedup, in classes of equal ratio that meet at 1×."""
    if not answers:
        return None
    speedups = [answer.speedup for answer in answers]
    step = _step(min(speedups), max(speedups))
    first, last = _class(min(speedups), step), _class(max(speedups), step)
    counts = dict.fromkeys(range(first, last + 1), 0)
    for speedup in speedups:
        counts[_class(speedup, step)] += 1
    labels = [f"{step**index:.2f}–{step ** (index + 1):.2f}×" for index in counts]
    above = sum(speedup > 1 for speedup in speedups)
    return Plot(
        key="distribution",
        title="Speedups",
        says=f"{above} of {len(speedups)} correct, timed answers have a speedup above 1×; "
        f"from {ratio_text(min(speedups))} to {ratio_text(max(speedups))}.",
        note="Correct, timed, public answers by their speedup; darker bars are above the baseline.",
        help="best-on-a-problem",
        traces=[
            {
                "type": "bar", "x": labels, "y": list(counts.values()),
                "text": [f"{label}<br>{number} answers" for label, number in zip(labels, counts.values(), strict=True)],
                "textposition": "none", "hoverinfo": "text",
                "marker": {
                    "color": ["--accent" if index >= 0 else "--calm-soft" for index in counts],
                    "line": {"color": "--strong-line", "width": 1},
                },
            }
        ],
        layout={
            "xaxis": axis("Speedup", type="category"),
            "yaxis": axis("Answers", rangemode="tozero", tickformat=",d"),
            "bargap": 0.1,
        },
        heads=[Head("Speedup"), Head("Answers", numeric=True), Head("Share", numeric=True)],
        rows=[
            [label, str(number), percent_text(number / len(speedups))]
            for label, number in zip(labels, counts.values(), strict=True)
        ],
    )  # fmt: skip


def _step(low: float, high: float) -> float:
    """The finest ratio between the ends of a class that needs at most ``MOST_BARS`` classes."""
    return next((s for s in STEPS if _class(high, s) - _class(low, s) < MOST_BARS), STEPS[-1])


def _class(speedup: float, step: float) -> int:
    """0 is the class that begins at 1×."""
    return math.floor(math.log(speedup) / math.log(step))


def best_over_time(answers: Sequence[Answer], best: Verdict) -> Plot | None:
    """The records in the order in which they were set."""
    records: list[Answer] = []
    for answer in sorted(answers):
        if not records or answer.speedup > records[-1].speedup:
            records.append(answer)
    if not records:
        return None
    days = [f"{record.at.astimezone(UTC):%Y-%m-%d %H:%M}" for record in records]
    texts = [f"{day} UTC<br>{ratio_text(record.speedup)}" for day, record in zip(days, records, strict=True)]
    return Plot(
        key="best",
        title="Best over time",
        says=f"{len(records)} records, from {ratio_text(records[0].speedup)} to {ratio_text(records[-1].speedup)}.",
        note=f"The fastest correct public answer that was there; now {ratio_text(best.speedup)} "
        f"by {best.evaluation.run.model.public_name}.",
        help="best-on-a-problem",
        traces=[
            {
                "type": "scatter", "mode": "lines+markers", "x": days, "y": [record.speedup for record in records],
                "text": texts, "hoverinfo": "text",
                "line": {"shape": "hv", "color": "--accent", "width": 2}, "marker": {"size": 8, "color": "--accent"},
            }
        ],
        layout={
            "xaxis": axis("Day of the verdict", type="date", tickformat="%Y-%m-%d", nticks=6),
            "yaxis": ratio_axis("Best speedup", [record.speedup for record in records]),
            "shapes": [line_at(1)],
        },
        heads=[Head("Verdict, UTC"), Head("Best speedup", numeric=True)],
        rows=[[day, ratio_text(record.speedup)] for day, record in zip(days, records, strict=True)],
    )  # fmt: skip
