"""Charts that the browser draws with Plotly, each together with the table that says the same.

A ``Plot`` is plain data. Its template (partials/plot.html) writes the table, which stands there without JavaScript, and
the data as JSON; static/plots.js draws the chart above the table. Colours are names of custom properties of the
stylesheet ("--accent"), which the script resolves, so that a chart follows the theme.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

DASHES = ("solid", "dash", "dot", "dashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up")
SERIES = ("--accent", "--t-expert", "--t-context", "--t-data")
"""Colours of up to four series beside each other; each also has its dash and its symbol."""

Cell = str | tuple[str, str]
"""A cell of a table: text, or a pair of text and address."""


@dataclass(frozen=True)
class Head:
    """The head of a column of the table; numbers are aligned to the right."""

    text: str
    numeric: bool = False


@dataclass(frozen=True)
class Plot:
    """A chart and its table. ``key`` is unique on its page; ``says`` is the sentence for those who do not see it.

    ``traces`` and ``layout`` are Plotly's, with units in the titles of axes. ``height`` in CSS pixels.
    """

    key: str
    title: str
    says: str
    traces: Sequence[Mapping[str, Any]]
    heads: Sequence[Head]
    rows: Sequence[Sequence[Cell]]
    layout: Mapping[str, Any] = field(default_factory=dict)
    note: str = ""
    help: str = ""
    height: int = 320

    @property
    def data(self) -> dict[str, Any]:
        """What the script draws."""
        return {"traces": list(self.traces), "layout": dict(self.layout), "height": self.height}

    @property
    def lines(self) -> list[list[tuple[str, str, Head]]]:
        """Rows of the table as (text, address or "", head)."""
        return [[(*_linked(cell), head) for cell, head in zip(row, self.heads, strict=True)] for row in self.rows]


def _linked(cell: Cell) -> tuple[str, str]:
    return (cell, "") if isinstance(cell, str) else cell


def axis(title: str, **options: Any) -> dict[str, Any]:
    """An axis with its title; numbers on it are never abbreviated to powers such as 1k or 10µ without their unit."""
    return {"title": {"text": title}, **options}


def line_at(value: float, *, on: str = "y", colour: str = "--strong-line", dash: str = "dash") -> dict[str, Any]:
    """A straight line across the chart at ``value`` of the axis ``on``."""
    other = "x" if on == "y" else "y"
    return {
        "type": "line",
        f"{on}0": value,
        f"{on}1": value,
        f"{other}ref": "paper",
        f"{other}0": 0,
        f"{other}1": 1,
        "layer": "below",
        "line": {"color": colour, "width": 1.5, "dash": dash},
    }
