"""Charts of the leaderboard, each with its table: fast_p, types, difficulty, correctness against cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from leaderboard import scoring
from leaderboard.charts import TypeShare
from leaderboard.figures import NONE, percent_text, ratio_text
from leaderboard.models import PublishedResult
from leaderboard.pages import board as boards
from leaderboard.pages.board import Board, Row
from leaderboard.plots import DASHES, SERIES, SYMBOLS, Head, Plot, axis, line_at

LINES = 6  # rows drawn as lines, so that each can be told from the others
CELLS = 20  # rows of the heat map
DIFFICULTIES = range(1, 6)


def charts(board: Board, rows: Sequence[Row]) -> list[Plot]:
    """The charts of the rows of a page. Figures of others are drawn as dotted lines, over the whole suite only."""
    labels = _labels(rows)
    published = list(boards.published_models()) if board.scope.whole else []
    found = [
        fast_p(board, rows[:LINES], labels, published),
        by_type(board, rows[:CELLS], labels),
        by_difficulty(board, rows[:LINES], labels),
        against_cost(rows, labels, published),
    ]
    return [plot for plot in found if plot is not None]


def fast_p(board: Board, rows: Sequence[Row], labels: Sequence[str], published: Sequence[PublishedResult]) -> Plot:
    """Share of problems that are correct and faster than p, for p from 0.25 to 8 on a logarithmic axis."""
    curves = [_curve(board, row) for row in rows]
    levels = scoring.FAST_P_LEVELS
    traces = [
        _line(
            number,
            label,
            list(levels),
            [100 * share for share in curve],
            [f"{label}<br>faster than {p:g}×: {percent_text(share)}" for p, share in zip(levels, curve, strict=True)],
        )
        for number, (label, curve) in enumerate(zip(labels, curves, strict=False))
    ]
    reported = [(p, _reported_fast_1(p)) for p in published if _reported_fast_1(p) is not None]
    if reported:
        traces.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "reported elsewhere, fast_1",
                "x": [1.0] * len(reported),
                "y": [100 * share for _, share in reported if share is not None],
                "text": [f"{_published_label(p)}<br>reported fast_1: {percent_text(share)}" for p, share in reported],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"symbol": "x-thin-open", "size": 10, "color": "--muted", "line": {"width": 2}},
            }
        )
    rest = [""] * (len(levels) - 1)
    at = levels.index(1.0)
    return Plot(
        key="fast-p",
        title="fast_p: how many problems are correct and how much faster",
        says="One line a run; it starts at the share of problems that are correct and nearly as fast as the baseline.",
        note="Share of the problems that are correct and faster than p times the baseline by the interval rule.",
        traces=traces,
        layout={
            "xaxis": axis(
                "p, times faster than the baseline",
                type="log",
                tickvals=list(levels),
                ticktext=[f"{p:g}" for p in levels],
            ),
            "yaxis": axis("share of problems, %", rangemode="tozero"),
            "shapes": [line_at(1.0, on="x")],
        },
        heads=[Head("Run"), *(Head(f"> {p:g}×", numeric=True) for p in levels)],
        rows=[
            *([label, *map(percent_text, curve)] for label, curve in zip(labels, curves, strict=False)),
            *(
                [f"{_published_label(p)} (reported elsewhere)", *rest[:at], percent_text(share), *rest[at:]]
                for p, share in reported
            ),
        ],
        height=380,
    )


def by_type(board: Board, rows: Sequence[Row], labels: Sequence[str]) -> Plot | None:
    """Heat map: share of each type's problems that each run solves."""
    held = [share for share in rows[0].shares if share.total]
    slugs = [share.slug for share in held]
    if not slugs:
        return None
    cells = [[next(s for s in row.shares if s.slug == slug) for slug in slugs] for row in rows]
    shown = list(zip(labels, cells, strict=False))
    view = "every type that it has" if board.selection.also else "its primary type"
    return Plot(
        key="types",
        title="Correct by type of parallelism",
        says="One line a run, one column a type; the darker, the more problems of the type are correct.",
        note=f"Problems of each type that are correct, of how many; the stronger the colour, the larger the share. "
        f"A problem counts in {view}.",
        traces=[_cells([share.label for share in held], label, line) for label, line in shown],
        layout={
            "barmode": "stack",
            "bargap": 0.04,
            "showlegend": False,
            "xaxis": axis("", tickangle=-40, showgrid=False),
            "yaxis": axis(
                "",
                tickvals=[number + 0.5 for number in range(len(shown))],
                ticktext=[label for label, _ in shown],
                range=[len(shown), 0],
                showgrid=False,
            ),
        },
        heads=[Head("Run"), *(Head(share.label, numeric=True) for share in held)],
        rows=[[label, *(f"{cell.correct}/{cell.total}" for cell in line)] for label, line in shown],
        height=140 + 26 * len(shown),
    )


def by_difficulty(board: Board, rows: Sequence[Row], labels: Sequence[str]) -> Plot | None:
    """Share of the problems of each difficulty that each run solves."""
    members = {
        level: scoring.to_bits(
            p.number for p in board.problems if p.difficulty == level and p.number in board.scope.numbers
        )
        for level in DIFFICULTIES
    }
    held = [level for level in DIFFICULTIES if members[level]]
    if len(held) < 2:
        return None
    counts = [[(row.score.solved & members[level]).bit_count() for level in held] for row in rows]
    totals = [members[level].bit_count() for level in held]
    ticks = [f"{level} ({total})" for level, total in zip(held, totals, strict=True)]
    shown = list(zip(labels, counts, strict=False))
    return Plot(
        key="difficulty",
        title="Correct by difficulty",
        says="One line a run; difficulty grows from left to right.",
        note="Share of the problems of each difficulty that are correct; in brackets how many there are.",
        traces=[
            _line(
                number,
                label,
                ticks,
                [100 * correct / total for correct, total in zip(line, totals, strict=True)],
                [f"{label}<br>difficulty {tick}: {c}/{t}" for tick, c, t in zip(held, line, totals, strict=True)],
            )
            for number, (label, line) in enumerate(shown)
        ],
        layout={
            "xaxis": axis("difficulty (problems)", type="category"),
            "yaxis": axis("correct, %", range=[0, 105]),
        },
        heads=[Head("Run"), *(Head(f"Difficulty {level}", numeric=True) for level in held)],
        rows=[
            [label, *(f"{correct}/{total}" for correct, total in zip(line, totals, strict=True))]
            for label, line in shown
        ],
    )


def against_cost(rows: Sequence[Row], labels: Sequence[str], published: Sequence[PublishedResult]) -> Plot | None:
    """Correctness against cost, with the runs that no other beats in both."""
    priced = [(label, row) for label, row in zip(labels, rows, strict=True) if row.run.cost_usd]
    if not priced:
        return None
    priced.sort(key=lambda pair: (pair[1].run.cost_usd, -pair[1].shown.rate))
    front = _front([(float(row.run.cost_usd), row.shown.rate) for _, row in priced])
    texts = [
        f"{label}<br>${row.run.cost_usd:.2f}: {row.shown.correct}/{row.shown.problems} correct" for label, row in priced
    ]
    traces: list[dict[str, Any]] = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": "runs",
            "x": [float(row.run.cost_usd) for _, row in priced],
            "y": [100 * row.shown.rate for _, row in priced],
            "text": texts,
            "hovertemplate": "%{text}<extra></extra>",
            "marker": {"size": 9, "color": "--accent", "symbol": "circle"},
        },
        {
            "type": "scatter",
            "mode": "lines",
            "name": "no run is cheaper and more correct",
            "x": [float(priced[i][1].run.cost_usd) for i in front],
            "y": [100 * priced[i][1].shown.rate for i in front],
            "hoverinfo": "skip",
            "line": {"shape": "hv", "width": 2, "dash": "dash", "color": "--t-expert"},
        },
    ]
    reported = [p for p in published if p.correct is not None and p.problems]
    return Plot(
        key="cost",
        title="Correct against cost",
        says="One point a run; cheaper is further left, more correct is higher.",
        note="Cost of the whole run in US dollars, as the team reported it. Runs without a cost are left out. "
        + ("Dotted: shares that others reported, without a cost." if reported else ""),
        traces=traces,
        layout={
            "xaxis": axis("cost of the run, US$", type="log"),
            "yaxis": axis("correct, %", rangemode="tozero"),
            "shapes": [line_at(100 * _share(p), colour="--muted", dash="dot") for p in reported],
        },
        heads=[
            Head("Run"),
            Head("Cost, US$", numeric=True),
            Head("Correct", numeric=True),
            Head("fast_1", numeric=True),
            Head("Speedup", numeric=True),
            Head("On the front"),
        ],
        rows=[
            *(
                [
                    label,
                    f"{row.run.cost_usd:.2f}",
                    f"{row.shown.correct}/{row.shown.problems}",
                    percent_text(row.shown.fast_1),
                    ratio_text(row.shown.speedup),
                    "yes" if number in front else "no",
                ]
                for number, (label, row) in enumerate(priced)
            ),
            *(
                [
                    f"{_published_label(p)} (reported elsewhere)",
                    NONE,
                    f"{p.correct}/{p.problems}",
                    percent_text(_reported_fast_1(p)),
                    NONE,
                    NONE,
                ]
                for p in reported
            ),
        ],
    )


def _front(points: Sequence[tuple[float, float]]) -> list[int]:
    """Indices of the points that no other beats: none is as cheap and more correct. ``points`` by rising cost."""
    front: list[int] = []
    for index, (_, rate) in enumerate(points):
        if not front or rate > points[front[-1]][1]:
            front.append(index)
    return front


def _line(number: int, label: str, x: list[Any], y: list[float], texts: list[str]) -> dict[str, Any]:
    """A line that differs from its neighbours in colour, dash and mark."""
    colour = SERIES[number % len(SERIES)]
    style = (number + number // len(SERIES)) % len(DASHES)
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": label,
        "x": x,
        "y": y,
        "text": texts,
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": colour, "dash": DASHES[style], "width": 2},
        "marker": {"color": colour, "symbol": SYMBOLS[style], "size": 7},
    }


def _cells(types: list[str], label: str, line: Sequence[TypeShare]) -> dict[str, Any]:
    """A line of the heat map, as one layer of stacked bars of height 1, with its figures in the cells.

    Plotly's own heat map and its bar of colours write style attributes, which the site's policy refuses.
    """
    return {
        "type": "bar",
        "name": label,
        "x": types,
        "y": [1] * len(types),
        "text": [f"{label}<br>{cell.text}" for cell in line],
        "customdata": [f"{cell.correct}/{cell.total}" for cell in line],
        "texttemplate": "%{customdata}",
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "hovertemplate": "%{text}<extra></extra>",
        "marker": {
            "color": [100 * cell.correct / cell.total for cell in line],
            "cmin": 0,
            "cmax": 100,
            "colorscale": [[0, "--calm-soft"], [1, "--accent"]],
            "line": {"color": "--bg", "width": 1},
        },
    }


def _curve(board: Board, row: Row) -> list[float]:
    if board.scope.whole:
        return [share for _, share in row.score.fast_p]
    outcomes = [parts.outcome(n) for n, parts in row.score.vector.items() if n in board.scope.numbers]
    return [share for _, share in scoring.fast_p(outcomes, len(board.scope.numbers))]


def _labels(rows: Sequence[Row]) -> list[str]:
    """Rank and name of each row; where two are alike, the run's id as well."""
    labels = [f"{row.place.rank}. {row.run.model.public_name}" for row in rows if row.place]
    alike = Counter(labels)
    return [
        f"{label} ({row.run.public_id})" if alike[label] > 1 else label for row, label in zip(rows, labels, strict=True)
    ]


def _published_label(result: PublishedResult) -> str:
    return f"{result.model}, {result.get_track_display().lower()}"


def _share(result: PublishedResult) -> float:
    return (result.correct or 0) / (result.problems or 1)


def _reported_fast_1(result: PublishedResult) -> float | None:
    if result.fast_1 is not None:
        return result.fast_1
    return result.faster / result.problems if result.faster is not None and result.problems else None
