"""Pictures say what the figures say."""

from __future__ import annotations

import re

import pytest

from leaderboard.charts import TypeShare, correctness_bar, timing_plot, type_strip
from leaderboard.figures import (
    bytes_text,
    cost_text,
    interval_text,
    percent_text,
    ratio_text,
    seconds_text,
    usd_text,
)


def heights(svg: str) -> list[float]:
    return [float(y) for y in re.findall(r'cy="([\d.]+)"', svg)]


def test_slower_samples_stand_higher() -> None:
    svg = timing_plot([((0.004, 0.002), (0.001,))])
    reference_slow, reference_fast, candidate = heights(svg)
    assert reference_slow < reference_fast < candidate
    assert re.findall(r"dy=\"3\">([^<]+)<", svg) == ["0 s", "1.00 ms", "2.00 ms", "3.00 ms", "4.00 ms"]


def test_a_single_disturbance_does_not_flatten_the_rest() -> None:
    svg = timing_plot([((0.001,) * 99 + (0.4,), (0.001,) * 100)])
    assert "1 above, up to 400 ms" in svg
    usual = max(heights(svg))  # y grows downwards; the axis for 0 s lies at 176
    assert 176 - usual > 50, "one millisecond must be seen although one sample took four hundred"


def test_no_samples_no_picture() -> None:
    assert timing_plot([]) == ""


def test_the_bar_is_as_long_as_the_share() -> None:
    assert 'class="value" width="55.0"' in correctness_bar(0.5, 0.2, 0.8)
    assert 'class="value" width="0.0"' in correctness_bar(0, 0, 0.3)


def test_boxes_are_filled_by_share_and_absent_types_are_dashed() -> None:
    svg = type_strip([TypeShare("tensor", "Te", "Tensor", 1, 2), TypeShare("graph", "Gr", "Graph", 0, 0)])
    assert 'class="share" x="1" y="10.0" width="13" height="9.0"' in svg
    assert "Graph: no problem" in svg
    assert 'aria-label="Tensor: 1 of 2 correct"' in svg


def test_labels_are_escaped() -> None:
    assert "<b>" not in type_strip([TypeShare("tensor", "Te", "<b>", 1, 2)])


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (seconds_text(0.001234), "1.23 ms"),
        (seconds_text(0.0999), "99.9 ms"),
        (seconds_text(0.9999), "1.00 s"),
        (seconds_text(59.96), "60.0 s"),
        (seconds_text(3600), "60 min"),
        (seconds_text(40_000), "11.1 h"),
        (seconds_text(2.5e-6), "2.50 µs"),
        (seconds_text(0), "0 s"),
        (seconds_text(None), "–"),
        (percent_text(0.12345), "12.3 %"),
        (percent_text(None), "–"),
        (ratio_text(1.2345), "1.23×"),
        (interval_text(1.1, 1.25), "1.10–1.25×"),
        (interval_text(None, None), "–"),
        (usd_text(1234.5), "$1,234.50"),
        (usd_text(0.00123), "$0.0012"),
        (usd_text(0.0000004), "$0.000000"),
        (usd_text(0), "$0.00"),
        (cost_text("0.420000", 18_000), "$0.42, 18,000 tokens"),
        (cost_text(None, None), "–"),
        (bytes_text(999), "999 B"),
        (bytes_text(12_345), "12.3 kB"),
        (bytes_text(1_000_000), "1.0 MB"),
    ],
)
def test_figures_have_units_and_a_fixed_precision(text: str, wanted: str) -> None:
    assert text == wanted
