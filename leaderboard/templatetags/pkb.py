"""Filters and tags of the templates: figures, pictures, source."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from django import template
from django.forms import BoundField, CheckboxInput
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import PythonLexer

from leaderboard import charts, figures
from leaderboard.markdown import MARKDOWN
from leaderboard.pages.outcome import CODE_TEXTS
from leaderboard.plots.canaries import canary_strip

register = template.Library()
_FILTERS: dict[str, Callable[..., str]] = {
    "percent": figures.percent_text,
    "ratio": figures.ratio_text,
    "seconds": figures.seconds_text,
    "bytes": figures.bytes_text,
    "rms": figures.error_text,
}
for _name, _filter in _FILTERS.items():
    register.filter(_name, _filter)
register.simple_tag(figures.interval_text, name="interval")
register.simple_tag(figures.cost_text, name="cost")
register.simple_tag(charts.correctness_bar)
register.simple_tag(charts.type_strip)
register.simple_tag(charts.type_letters)
register.simple_tag(charts.timing_plot)
register.simple_tag(canary_strip)

_ACRONYMS = {"llm": "LLM", "moe": "MoE", "gnn": "GNN"}


_ORIGINS = {
    "own": "own kernels",
    "library": "library",
    "communication": "communication",
    "copy": "copies within a rank",
    "framework": "torch",
    "gap": "gaps",
}


@register.filter
def origin(name: str) -> str:
    """Whose work the time of a call went into, in words; see ``evaluator.contract.Origin``."""
    return _ORIGINS[name]


@register.filter
def is_checkbox(field: BoundField) -> bool:
    return isinstance(field.field.widget, CheckboxInput)


@register.filter
def code_text(code: str) -> str:
    """A verdict's code in words: 'wrong_values' -> 'wrong values'."""
    return CODE_TEXTS.get(code, code)


@register.filter
def words(name: str) -> str:
    """An identifier as words: 'llm_training' -> 'LLM training'."""
    return " ".join(_ACRONYMS.get(word, word) for word in name.split("_"))


@register.filter
def breakable(name: str) -> SafeString:
    """A long identifier that may break after its underscores and nowhere else."""
    return format_html_join(mark_safe("_<wbr>"), "{}", ((part,) for part in name.split("_")))


@register.filter
def markdown(text: str) -> SafeString:
    """CommonMark with tables; HTML in the text is shown, never interpreted."""
    return mark_safe(MARKDOWN.render(text))  # noqa: S308 (rendered with html off)


@register.filter
def python_source(source: str) -> SafeString:
    """Highlighted Python with line numbers, by class names only (the policy allows no inline styles)."""
    formatter = HtmlFormatter(linenos="table", cssclass="highlight", wrapcode=True)
    return mark_safe(highlight(source, PythonLexer(stripnl=False), formatter))  # noqa: S308 (Pygments escapes)


@register.filter
def day(moment: datetime | None) -> SafeString | str:
    """The date with the full time in UTC for those who look: '2026-12-01'."""
    if moment is None:
        return figures.NONE
    utc = moment.astimezone(UTC)
    return format_html(
        '<time datetime="{}" title="{} UTC">{}</time>',
        utc.isoformat(timespec="seconds"),
        f"{utc:%Y-%m-%d %H:%M:%S}",
        f"{utc:%Y-%m-%d}",
    )
