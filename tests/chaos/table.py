"""The table of faults and outcomes, from the recorded lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from tests.chaos.faults import FAULTS

HEAD = (
    "fault",
    "times",
    "runs",
    "submissions",
    "verdicts",
    "attempts lost and made again",
    "failures of ours",
    "messages refused",
    "breaches",
    "median recovery",
)


def table(lines: Sequence[dict[str, Any]]) -> str:
    """Markdown: one row a fault, over the runs in which it struck; the last row is over all runs."""
    times: dict[str, int] = defaultdict(int)
    runs: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for line in lines:
        names = [name for _, name in line["faults"]]
        for name in names:
            times[name] += 1
        for name in set(names):
            runs[name].append(line)
    rows = [HEAD, tuple("---" if place == 0 else "---:" for place in range(len(HEAD)))]
    rows += [_row(name, times[name], runs[name]) for name in FAULTS if runs[name]]
    rows.append(_row("**all**", sum(times.values()), list(lines)))
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _row(name: str, times: int, lines: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    def total(key: str) -> str:
        return f"{sum(line[key] for line in lines):,}"

    return (
        name.replace("_", " "),
        str(times),
        str(len(lines)),
        total("submissions"),
        total("verdicts"),
        total("lost_attempts"),
        total("failures_of_ours"),
        total("refused_messages"),
        str(sum(len(line["breaches"]) for line in lines)),
        f"{median(line['recovery_seconds'] for line in lines):.0f} s",
    )
