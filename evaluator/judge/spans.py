"""Arithmetic on sets of time, as sorted lists of disjoint half-open spans (start, end)."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[int, int]


def union(spans: Iterable[Span]) -> list[Span]:
    """The time that at least one of the spans covers."""
    merged: list[Span] = []
    for start, end in sorted(spans):
        if end <= start:
            continue
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def intersection(first: list[Span], second: list[Span]) -> list[Span]:
    """The time that both cover; both must be unions."""
    found: list[Span] = []
    i = j = 0
    while i < len(first) and j < len(second):
        start, end = max(first[i][0], second[j][0]), min(first[i][1], second[j][1])
        if start < end:
            found.append((start, end))
        if first[i][1] < second[j][1]:
            i += 1
        else:
            j += 1
    return found


def difference(first: list[Span], second: list[Span]) -> list[Span]:
    """The time that the first covers and the second does not; both must be unions."""
    found: list[Span] = []
    j = 0
    for start, end in first:
        at = start
        while j < len(second) and second[j][1] <= at:
            j += 1
        k = j
        while k < len(second) and second[k][0] < end:
            if second[k][0] > at:
                found.append((at, second[k][0]))
            at = max(at, second[k][1])
            k += 1
        if at < end:
            found.append((at, end))
    return found


def length(spans: Iterable[Span]) -> int:
    """Total time of disjoint spans."""
    return sum(end - start for start, end in spans)
