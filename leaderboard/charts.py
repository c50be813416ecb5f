"""Small pictures drawn on the server as SVG: no script, no style attributes, each with a text for those who do not see.

Every figure that a picture shows also stands beside it as text or in a table.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from leaderboard.figures import percent_text, seconds_text

BAR_WIDTH, BAR_HEIGHT = 110, 14
BOX_WIDTH, BOX_HEIGHT, BOX_STEP = 13, 18, 16
PLOT_WIDTH, PLOT_HEIGHT = 640, 200
PLOT_LEFT, PLOT_BOTTOM, PLOT_TOP = 62, 24, 8


@dataclass(frozen=True)
class TypeShare:
    """Correct verdicts of one run on the problems of one type. ``total`` 0: the suite has none of this type."""

    slug: str
    letters: str
    label: str
    correct: int
    total: int

    @property
    def text(self) -> str:
        return f"{self.label}: {self.correct} of {self.total} correct"


def correctness_bar(share: float, low: float, high: float) -> SafeString:
    """A bar for ``share`` with its interval [low, high] as a line; all in 0..1."""
    return format_html(
        '<svg class="bar" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
        '<rect class="track" width="{w}" height="10" y="2" rx="2"/>'
        '<rect class="value" width="{value}" height="10" y="2" rx="2"/>'
        '<path class="interval" d="M{low} 7H{high}M{low} 3.5V10.5M{high} 3.5V10.5"/></svg>',
        w=BAR_WIDTH,
        h=BAR_HEIGHT,
        label=f"{percent_text(share)} correct, 95 % interval {percent_text(low)} to {percent_text(high)}",
        value=f"{share * BAR_WIDTH:.1f}",
        low=f"{1 + low * (BAR_WIDTH - 2):.1f}",
        high=f"{1 + high * (BAR_WIDTH - 2):.1f}",
    )


def type_strip(shares: Sequence[TypeShare]) -> SafeString:
    """One box a type, filled from below by the share that is correct; a dashed box where the suite has no problem."""
    boxes = format_html_join("", "{}", ((_type_box(i, share),) for i, share in enumerate(shares)))
    width = max(1, len(shares) * BOX_STEP)
    return format_html(
        '<svg class="strip" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
        "{boxes}</svg>",
        w=width,
        h=BOX_HEIGHT + 2,
        label="; ".join(share.text for share in shares if share.total),
        boxes=boxes,
    )


def _type_box(index: int, share: TypeShare) -> SafeString:
    x = index * BOX_STEP + 1
    if not share.total:
        return format_html(
            '<rect class="absent" x="{}" y="1" width="{}" height="{}" rx="2"><title>{}: no problem</title></rect>',
            x,
            BOX_WIDTH,
            BOX_HEIGHT,
            share.label,
        )
    filled = BOX_HEIGHT * share.correct / share.total
    return format_html(
        '<g class="t-{slug}"><title>{text}</title>'
        '<rect class="box" x="{x}" y="1" width="{w}" height="{h}" rx="2"/>'
        '<rect class="share" x="{x}" y="{y}" width="{w}" height="{filled}" rx="2"/></g>',
        slug=share.slug,
        text=share.text,
        x=x,
        w=BOX_WIDTH,
        h=BOX_HEIGHT,
        y=f"{1 + BOX_HEIGHT - filled:.1f}",
        filled=f"{filled:.1f}",
    )


def type_letters(types: Iterable[tuple[str, str]]) -> SafeString:
    """The head of the column of strips: ``types`` are pairs of letters and label, drawn with the boxes' spacing."""
    pairs = list(types)
    texts = format_html_join(
        "",
        '<text x="{}" y="11">{}<title>{}</title></text>',
        ((i * BOX_STEP + 1 + BOX_WIDTH / 2, letters, label) for i, (letters, label) in enumerate(pairs)),
    )
    width = max(1, len(pairs) * BOX_STEP)
    return format_html(
        '<svg class="strip" width="{w}" height="14" viewBox="0 0 {w} 14" role="img" aria-label="By type: {label}">'
        "{texts}</svg>",
        w=width,
        label=", ".join(label for _, label in pairs),
        texts=texts,
    )


def timing_plot(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> SafeString:
    """Samples of both arms, in seconds, block pair by block pair: rings are the baseline, dots the submission.

    The scale fits all but the slowest few samples; those that a disturbance pushed beyond it stand at the upper edge
    and are counted.
    """
    samples = [s for pair in pairs for arm in pair for s in arm if s > 0]
    if not samples:
        return SafeString("")
    ticks = _ticks(min(max(samples), 2 * sorted(samples)[int(0.95 * (len(samples) - 1))]))
    top = ticks[-1]
    beyond = sum(sample > top for sample in samples)

    def y(seconds: float) -> str:
        return f"{PLOT_TOP + (PLOT_HEIGHT - PLOT_TOP - PLOT_BOTTOM) * (1 - min(seconds, top) / top):.1f}"

    width = (PLOT_WIDTH - PLOT_LEFT) / len(pairs)
    marks = []
    for number, (reference, candidate) in enumerate(pairs):
        left = PLOT_LEFT + number * width
        marks += [("reference", f"{left + width * 0.32 + _spread(i, width)}", y(s)) for i, s in enumerate(reference)]
        marks += [("candidate", f"{left + width * 0.68 + _spread(i, width)}", y(s)) for i, s in enumerate(candidate)]
    return format_html(
        '<svg class="plot" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
        '{rules}{marks}<line class="axis" x1="{left}" y1="{base}" x2="{w}" y2="{base}"/>{numbers}{beyond}</svg>',
        w=PLOT_WIDTH,
        h=PLOT_HEIGHT,
        left=PLOT_LEFT,
        base=PLOT_HEIGHT - PLOT_BOTTOM,
        label=f"{len(pairs)} block pairs, samples from {seconds_text(min(samples))} to {seconds_text(max(samples))}",
        beyond=format_html(
            '<text x="{}" y="20" text-anchor="end">{} above, up to {}</text>',
            PLOT_WIDTH - 4,
            beyond,
            seconds_text(max(samples)),
        )
        if beyond
        else "",
        rules=format_html_join(
            "",
            '<line class="rule" x1="{}" y1="{}" x2="{}" y2="{}"/><text x="4" y="{}" dy="3">{}</text>',
            ((PLOT_LEFT, y(t), PLOT_WIDTH, y(t), y(t), seconds_text(t)) for t in ticks),
        ),
        marks=format_html_join("", '<circle class="{}" cx="{}" cy="{}" r="2.6"/>', marks),
        numbers=format_html_join(
            "",
            '<text x="{}" y="{}" text-anchor="middle">{}</text>',
            ((f"{PLOT_LEFT + (i + 0.5) * width:.1f}", PLOT_HEIGHT - 8, i + 1) for i in range(len(pairs))),
        ),
    )


def _spread(index: int, width: float) -> float:
    """Moves samples of one block a little apart, so that equal ones do not cover each other; the same every time."""
    return round(((index * 0.618) % 1 - 0.5) * width * 0.26, 1)


def _ticks(largest: float) -> list[float]:
    """Four to six round values from 0 to at least ``largest``."""
    raw = largest / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    return [step * i for i in range(math.ceil(largest / step - 1e-9) + 1)]
