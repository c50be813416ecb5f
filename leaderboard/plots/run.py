"""Charts of one run in one evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaluator.contract import Decision
from leaderboard.figures import cost_text, count_text, interval_text, percent_text, ratio_text, seconds_text, usd_text
from leaderboard.plots import Head, Plot, axis, line_at
from leaderboard.plots.scales import ratio_axis, time_axis
from leaderboard.profiles import Step, Use
from problems.models import Type

DECISIONS: tuple[tuple[str, str, str, str], ...] = (
    (Decision.FASTER, "faster", "--good", ""),
    (Decision.TIE, "tie", "--calm", "."),
    (Decision.SLOWER, "slower", "--warn", "/"),
)
"""Decision, label, colour and pattern: each is told from the others without its colour."""
TYPE_SYMBOLS = (
    "circle", "square", "diamond", "cross", "x", "triangle-up", "triangle-down", "pentagon", "star", "hexagram",
    "bowtie",
)  # fmt: skip


@dataclass(frozen=True)
class Point:
    """A correct, timed answer. Times in seconds per call; ``overlap`` and ``serial`` are the bounds of its problem."""

    label: str
    type: str
    address: str
    decision: str
    speedup: float
    low: float
    high: float
    seconds: float
    overlap: float | None = None
    serial: float | None = None
    utilisation: float | None = None


def waterfall(points: Sequence[Point]) -> Plot | None:
    """Speedups from the largest to the smallest, with their intervals; None without any."""
    ordered = sorted(points, key=lambda point: -point.speedup)
    if not ordered:
        return None
    traces = [_bars(ordered, *decision) for decision in DECISIONS]
    faster = sum(point.decision == Decision.FASTER for point in ordered)
    return Plot(
        key="waterfall",
        title="Speedups, sorted",
        says=f"{faster} of {len(ordered)} correct and timed answers are faster than the baseline; "
        f"speedups from {ratio_text(ordered[-1].speedup)} to {ratio_text(ordered[0].speedup)}.",
        note="Correct, timed answers; lines are 95 % intervals, 1× is the baseline.",
        help="speedups-sorted",
        traces=[trace for trace in traces if trace["x"]],
        layout={
            "xaxis": axis("Problem", type="category", categoryorder="array", showticklabels=len(ordered) <= 40,
                          categoryarray=[_number(point) for point in ordered], tickangle=0),
            "yaxis": ratio_axis("Speedup", [v for point in ordered for v in (point.low, point.high)]),
            "shapes": [line_at(1)],
            "bargap": 0.25,
        },
        heads=[
            Head("Problem"), Head("Decision"), Head("Speedup", numeric=True), Head("95 % interval", numeric=True),
        ],
        rows=[
            [(p.label, p.address), p.decision, ratio_text(p.speedup), interval_text(p.low, p.high)] for p in ordered
        ],
    )  # fmt: skip


def _number(point: Point) -> str:
    """The problem's number, which fits below a bar; charts of one answer a problem have each once."""
    return point.label.partition(" ")[0]


def _bars(points: Sequence[Point], decision: str, label: str, colour: str, pattern: str) -> dict[str, Any]:
    shown = [point for point in points if point.decision == decision]
    return {
        "type": "bar",
        "name": label,
        "x": [_number(point) for point in shown],
        "y": [point.speedup - 1 for point in shown],
        "base": [1] * len(shown),
        "marker": {
            "color": colour,
            "pattern": {"shape": pattern, "solidity": 0.5},
            "line": {"color": colour, "width": 1},
        },
        "error_y": {
            "type": "data",
            "symmetric": False,
            "array": [point.high - point.speedup for point in shown],
            "arrayminus": [point.speedup - point.low for point in shown],
            "color": "--ink",
            "thickness": 1,
            "width": 2,
        },
        "text": [
            f"{point.label}<br>{label} {ratio_text(point.speedup)}<br>{interval_text(point.low, point.high)}"
            for point in shown
        ],
        "textposition": "none",
        "hoverinfo": "text",
    }


def roofline(points: Sequence[Point]) -> Plot | None:
    """Measured times against the bounds of the problems; None where no answer has a bound."""
    bounded = sorted((p for p in points if p.overlap and p.serial), key=lambda point: -(point.utilisation or 0))
    if not bounded:
        return None
    overlaps, every = [p.overlap or 0.0 for p in bounded], [p.seconds for p in bounded]
    every += [p.serial or 0.0 for p in bounded] + overlaps
    ends = [min(overlaps) / 1.5, max(overlaps) * 1.5]
    best = bounded[0]
    return Plot(
        key="roofline",
        title="Time against the roofline",
        says=f"{len(bounded)} answers with a bound; the closest is {best.label} with "
        f"{percent_text(best.utilisation)} of the overlap bound.",
        note="On the lower line a call takes as long as with perfect overlap; small bars mark the time without any.",
        help="time-against-the-roofline",
        height=420,
        traces=[
            _line("overlap bound", ends, 1, "solid"),
            _line("twice the bound", ends, 2, "dot"),
            {
                "type": "scatter", "mode": "markers", "name": "serial bound", "hoverinfo": "skip",
                "x": overlaps, "y": [p.serial for p in bounded],
                "marker": {"symbol": "line-ew-open", "size": 11, "color": "--muted", "line": {"width": 1.5}},
            },
            *(_of_type(bounded, index, value, label) for index, (value, label) in enumerate(Type.choices)
              if any(p.type == value for p in bounded)),
        ],
        layout={
            "xaxis": time_axis("Overlap bound per call", overlaps),
            "yaxis": time_axis("Measured time per call", every),
        },
        heads=[
            Head("Problem"), Head("Type"), Head("Overlap bound", numeric=True), Head("Serial bound", numeric=True),
            Head("Measured", numeric=True), Head("Of overlap bound", numeric=True),
        ],
        rows=[
            [(p.label, p.address), Type(p.type).label, seconds_text(p.overlap), seconds_text(p.serial),
             seconds_text(p.seconds), percent_text(p.utilisation)]
            for p in bounded
        ],
    )  # fmt: skip


def _line(name: str, ends: Sequence[float], times: float, dash: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "hoverinfo": "skip",
        "x": list(ends),
        "y": [times * end for end in ends],
        "line": {"color": "--strong-line", "width": 1.5, "dash": dash},
    }


def _of_type(points: Sequence[Point], index: int, value: str, label: str) -> dict[str, Any]:
    shown = [point for point in points if point.type == value]
    return {
        "type": "scatter",
        "mode": "markers",
        "name": label,
        "x": [point.overlap for point in shown],
        "y": [point.seconds for point in shown],
        "text": [
            f"{p.label}<br>{seconds_text(p.seconds)} measured<br>{seconds_text(p.overlap)} overlap bound, "
            f"{percent_text(p.utilisation)} reached<br>{seconds_text(p.serial)} serial bound"
            for p in shown
        ],
        "hoverinfo": "text",
        "marker": {"color": f"--t-{value}", "symbol": TYPE_SYMBOLS[index], "size": 9},
    }


def agent_steps(steps: Sequence[Step], problems: int) -> Plot | None:
    """Correct and faster problems after each step of an agent; None for other runs."""
    if not steps:
        return None
    last = steps[-1]
    curves = (
        ("correct", "correct", "--accent", "solid", "circle"),
        ("faster", "correct and faster", "--good", "solid", "square"),
        ("ever_correct", "correct at some step", "--accent", "dot", "circle-open"),
        ("ever_faster", "faster at some step", "--good", "dot", "square-open"),
    )
    names = ("Step", "Answered", "Correct", "Faster", "Correct at some step", "Faster at some step")
    heads = [Head(name, numeric=True) for name in names]
    return Plot(
        key="steps",
        title="Step by step",
        says=f"After step {last.step}, {last.correct} of {problems} problems are correct and {last.faster} faster.",
        note="Of the answers that stand after a step; dotted: of all answers until then. The last step counts.",
        help="step-by-step",
        traces=[
            {
                "type": "scatter", "mode": "lines+markers", "name": label,
                "x": [step.step for step in steps], "y": [getattr(step, name) for step in steps],
                "text": [f"step {step.step}<br>{getattr(step, name)} of {problems} {label}" for step in steps],
                "hoverinfo": "text",
                "line": {"color": colour, "dash": dash}, "marker": {"symbol": symbol, "size": 8},
            }
            for name, label, colour, dash, symbol in curves
        ],
        layout={
            "xaxis": axis("Step", tickmode="linear", dtick=max(1, round(len(steps) / 12))),
            "yaxis": axis(f"Problems of {problems}", rangemode="tozero"),
        },
        heads=heads,
        rows=[[str(part) for part in step[: len(heads)]] for step in steps],
    )  # fmt: skip


def step_costs(steps: Sequence[Step]) -> Plot | None:
    """What had been spent by each step, in US dollars if they were given, else in tokens; None where neither is known.

    The curve ends before the first step for which the total is not known.
    """
    in_usd = any(step.cost_usd is not None for step in steps)
    priced = [step for step in steps if (step.cost_usd if in_usd else step.cost_tokens) is not None]
    if not priced:
        return None
    last = priced[-1]
    ends = (
        f" It ends before step {steps[len(priced)].step}, which has a file without a cost." if last != steps[-1] else ""
    )
    unit = "US$" if in_usd else "tokens"
    return Plot(
        key="step-costs",
        title="Cost step by step",
        says=f"By step {last.step}, {cost_text(last.cost_usd, last.cost_tokens)} had been spent.{ends}",
        note=f"Spent on all files until then, on all problems together, as the team reported it.{ends}",
        help="cost-step-by-step",
        traces=[
            {
                "type": "scatter", "mode": "lines+markers", "name": f"cost, {unit}",
                "x": [step.step for step in priced],
                "y": [step.cost_usd if in_usd else step.cost_tokens for step in priced],
                "text": [
                    f"step {step.step}<br>{cost_text(step.cost_usd, step.cost_tokens)}<br>{step.correct} correct"
                    for step in priced
                ],
                "hoverinfo": "text",
                "line": {"color": "--accent"}, "marker": {"symbol": "circle", "size": 8},
            }
        ],
        layout={
            "xaxis": axis("Step", tickmode="linear", dtick=max(1, round(len(steps) / 12))),
            "yaxis": axis(f"Spent so far, {unit}", rangemode="tozero", separatethousands=True),
        },
        heads=[
            Head(name, numeric=True)
            for name in ("Step", "Spent so far, US$", "Spent so far, tokens", "Correct", "Faster")
        ],
        rows=[
            [str(step.step), usd_text(step.cost_usd), count_text(step.cost_tokens), str(step.correct), str(step.faster)]
            for step in steps
        ],
    )  # fmt: skip


def mechanisms(uses: Mapping[str, Use], *, key: str = "mechanisms", title: str = "Mechanisms used") -> Plot | None:
    """How many answers use each mechanism, are correct, are faster; the most used first. None without any."""
    ordered = sorted(uses.items(), key=lambda entry: (-entry[1].answers, entry[0]))
    if not ordered:
        return None
    parts = (("answers", "use it", "--calm-soft", 0.8), ("correct", "correct", "--accent", 0.5),
             ("faster", "correct and faster", "--good", 0.2))  # fmt: skip
    names = [name for name, _ in ordered]
    return Plot(
        key=key,
        title=title,
        says=f"Most used is {names[0]}, by {ordered[0][1].answers} answers, {ordered[0][1].correct} of them correct.",
        note="An answer may use several. Read from the source and, where it ran, confirmed by the profiler.",
        help="mechanisms",
        height=70 + 30 * len(ordered),
        traces=[
            {
                "type": "bar", "orientation": "h", "name": label, "y": names,
                "x": [getattr(use, part) for _, use in ordered], "width": width,
                "text": [f"{name}<br>{getattr(use, part)} {label}" for name, use in ordered],
                "textposition": "none", "hoverinfo": "text",
                "marker": {"color": colour, "line": {"color": "--strong-line", "width": 1}},
            }
            for part, label, colour, width in parts
        ],
        layout={
            "barmode": "overlay",
            "xaxis": axis("Answers", rangemode="tozero", tickformat=",d"),
            "yaxis": axis("", autorange="reversed", type="category"),
        },
        heads=[Head("Mechanism"), Head("Answers", numeric=True), Head("Correct", numeric=True),
               Head("Faster", numeric=True), Head("Correct of these", numeric=True)],
        rows=[
            [name, *(str(part) for part in use), percent_text(use.correct / use.answers)] for name, use in ordered
        ],
    )  # fmt: skip


def failures(lines: Sequence[tuple[str, str, int]], *, files: int) -> Plot | None:
    """Files that fail by phase and code: ``lines`` of (phase, code, number) in the order in which a file meets them."""
    if not lines:
        return None
    labels = [f"{phase}: {code}" for phase, code, _ in lines]
    return Plot(
        key="failures",
        title="What fails",
        says=f"{sum(number for *_, number in lines)} of {files} files fail; most at "
        f"{max(zip(labels, lines, strict=True), key=lambda entry: entry[1][2])[0]}.",
        note="By the phase that failed and the code of the verdict, in the order in which a file meets them.",
        help="what-fails",
        height=70 + 30 * len(lines),
        traces=[
            {
                "type": "bar", "orientation": "h", "y": labels, "x": [number for *_, number in lines],
                "text": [f"{label}<br>{number} files" for label, (*_, number) in zip(labels, lines, strict=True)],
                "textposition": "none", "hoverinfo": "text", "marker": {"color": "--bad"},
            }
        ],
        layout={
            "xaxis": axis("Files", rangemode="tozero", tickformat=",d"),
            "yaxis": axis("", autorange="reversed", type="category"),
            "bargap": 0.35,
        },
        heads=[Head("Phase"), Head("Code"), Head("Files", numeric=True), Head("Share", numeric=True)],
        rows=[[phase, code, str(number), percent_text(number / files)] for phase, code, number in lines],
    )  # fmt: skip
