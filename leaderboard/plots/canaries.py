"""The ratios of a host's canaries as a small picture; the page has them in a table, too."""

from __future__ import annotations

import math
from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from leaderboard.figures import ratio_text
from leaderboard.models import Canary

WIDTH, HEIGHT, EDGE = 144, 36, 4
MARGIN = 1.15  # of the scale beyond the band


def canary_strip(canaries: Sequence[Canary], band: tuple[float, float] | None) -> SafeString:
    """One mark a canary, oldest first, on a logarithmic scale over the band in which ratios must lie.

    What lies beyond the scale is drawn at its edge. Empty where there is no ratio to show.
    """
    timed = [canary for canary in canaries if canary.speedup]
    if not timed or band is None:
        return mark_safe("")
    low, high = math.log(band[0] / MARGIN), math.log(band[1] * MARGIN)

    def y(ratio: float) -> str:
        share = (math.log(ratio) - low) / (high - low)
        return f"{HEIGHT - EDGE - (HEIGHT - 2 * EDGE) * min(1.0, max(0.0, share)):.1f}"

    step = (WIDTH - 2 * EDGE) / max(1, len(timed) - 1)
    marks = format_html_join(
        "",
        '<circle class="{}" cx="{}" cy="{}" r="2.5"/>',
        (
            ("passed" if canary.passed else "failed", f"{EDGE + number * step:.1f}", y(canary.speedup or 1.0))
            for number, canary in enumerate(timed)
        ),
    )
    last = ratio_text(timed[-1].speedup)
    return format_html(
        '<svg class="canaries" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
        '<rect class="band" x="0" y="{top}" width="{w}" height="{band}"/><line class="one" x1="0" y1="{one}" '
        'x2="{w}" y2="{one}"/>{marks}</svg>',
        w=WIDTH,
        h=HEIGHT,
        label=f"Ratios of the last {len(timed)} canaries, the last {last}; allowed are {band[0]:g} to {band[1]:g}",
        top=y(band[1]),
        band=f"{float(y(band[0])) - float(y(band[1])):.1f}",
        one=y(1.0),
        marks=marks,
    )
