"""What changed between two files, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

MAX_LINES = 4_000  # of either file: comparing takes up to the product of both
CONTEXT = 3
TONES = {"+": "added", "-": "removed", "@": "place", " ": "same"}


@dataclass(frozen=True)
class Line:
    """``tone``: suffix of the style class d-…; the first character of ``text`` says the same without colour."""

    text: str
    tone: str


@dataclass(frozen=True)
class Difference:
    """``lines`` with three lines of context; ``too_long`` where the files are too long to compare here."""

    old: str
    new: str
    lines: list[Line]
    added: int
    removed: int
    too_long: bool = False


def between(old: str, new: str, *, old_name: str, new_name: str) -> Difference:
    """The difference from ``old`` to ``new``, named as the reader knows them."""
    before, after = old.splitlines(), new.splitlines()
    if max(len(before), len(after)) > MAX_LINES:
        return Difference(old_name, new_name, [], 0, 0, too_long=True)
    lines = list(_lines(before, after))
    counts = [sum(line.tone == tone for line in lines) for tone in ("added", "removed")]
    return Difference(old_name, new_name, lines, *counts)


def _lines(before: list[str], after: list[str]) -> Iterator[Line]:
    found = difflib.unified_diff(before, after, n=CONTEXT, lineterm="")
    for number, text in enumerate(found):
        if number >= 2:  # the first two are the names of the files
            yield Line(text, TONES[text[:1]])
