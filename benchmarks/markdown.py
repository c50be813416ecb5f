"""Tables in Markdown, for the documents that benchmarks write."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table, ended by a line break. A heading that begins with ">" has its column set to the right."""
    lines = [_line(heading.removeprefix(">") for heading in headings)]
    lines.append("|" + "|".join("---:" if heading.startswith(">") else "---" for heading in headings) + "|\n")
    return "".join([*lines, *(_line(str(cell) for cell in row) for row in rows)])


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in cells) + " |\n"
