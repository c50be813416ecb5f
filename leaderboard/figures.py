"""How figures are written everywhere: fixed precision, units, one sign for "there is none"."""

from __future__ import annotations

from decimal import Decimal

NONE = "–"
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def percent_text(share: float | None, digits: int = 1) -> str:
    """0.471 -> '47.1 %'."""
    return NONE if share is None else f"{100 * share:.{digits}f} %"


def ratio_text(ratio: float | None) -> str:
    """A speedup: 1.2345 -> '1.23×'."""
    return NONE if ratio is None else f"{ratio:.2f}×"


def seconds_text(seconds: float | None) -> str:
    """Three significant digits with the unit that fits: 0.001234 -> '1.23 ms', 75 -> '75.0 s', 4000 -> '67 min'."""
    if seconds is None:
        return NONE
    if seconds == 0:
        return "0 s"
    if seconds >= 600:
        return f"{seconds / 60:.0f} min" if seconds < 36_000 else f"{seconds / 3600:.1f} h"
    scale, unit = next((u for u in _UNITS if seconds >= u[0] * 0.9995), _UNITS[-1])
    value = seconds / scale
    digits = 2 if value < 9.995 else 1 if value < 99.95 else 0
    return f"{value:.{digits}f} {unit}"


def interval_text(low: float | None, high: float | None) -> str:
    """The interval of a speedup: '1.18–1.29×'."""
    return NONE if low is None or high is None else f"{low:.2f}–{high:.2f}×"


def bytes_text(size: int) -> str:
    """'812 B', '12.3 kB', '1.0 MB'; decimal units, as limits are given."""
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} kB" if size < 1_000_000 else f"{size / 1_000_000:.1f} MB"


def error_text(value: float | None) -> str:
    """An error in units of rms: two significant digits."""
    return NONE if value is None else f"{value:.2g}"


def count_text(number: int | None) -> str:
    """18000 -> '18,000'."""
    return NONE if number is None else f"{number:,}"


def usd_text(amount: Decimal | float | None) -> str:
    """Cents, and below ten of them two significant digits: 1234.5 -> '$1,234.50', 0.001234 -> '$0.0012'."""
    if amount is None:
        return NONE
    value, digits = float(amount), 2
    while digits < 6 and 0 < value < 0.995 * 10 ** (1 - digits):
        digits += 1
    return f"${value:,.{digits}f}"


def cost_text(usd: Decimal | float | str | None, tokens: int | None) -> str:
    """What something cost, as far as it is known: '$0.42, 18,000 tokens'."""
    parts = [usd_text(Decimal(usd))] if usd is not None else []
    return ", ".join([*parts, f"{count_text(tokens)} tokens"] if tokens is not None else parts) or NONE
