"""What a rank's profiler recorded, as the sandbox tells it: read within limits, and never more than evidence.

A record is JSON: ``names`` (texts), ``events`` (rows of name index, kind index, start, duration, track; nanoseconds,
counted from the first event) and ``dropped``, the number of events that did not fit.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from evaluator.runner.observing import KINDS
from evaluator.runner.wire import BadFrame

MAX_EVENTS = 200_000
MAX_NAMES = 5_000
MAX_NAME = 200
MAX_NANOSECONDS = 3_600 * 10**9
CALL = "call"


class Event(NamedTuple):
    """``kind`` is one of ``runner.observing.KINDS``; ``track`` a thread, or a stream of a device."""

    name: str
    kind: str
    start: int
    duration: int
    track: int

    @property
    def end(self) -> int:
        return self.start + self.duration


@dataclass(frozen=True)
class Observation:
    """Events of one rank by start; outer ones before those that they hold."""

    events: tuple[Event, ...]
    dropped: int

    @property
    def calls(self) -> list[Event]:
        """The windows in which a call ran."""
        return [event for event in self.events if event.kind == CALL]


def parse(raw: bytes) -> Observation:
    """The record of one rank. Raises BadFrame for anything that the runner never writes."""
    try:
        record = json.loads(raw)
        names = [_name(name) for name in record["names"]]
        rows = record["events"]
        dropped = record["dropped"]
        if len(names) > MAX_NAMES or not isinstance(rows, list) or len(rows) > MAX_EVENTS or type(dropped) is not int:
            raise BadFrame("record of a profiler beyond its limits")
        events = sorted((_event(row, names) for row in rows), key=lambda event: (event.start, -event.duration))
    except BadFrame:
        raise
    except (ValueError, TypeError, KeyError, IndexError, RecursionError) as error:
        raise BadFrame(f"record of a profiler that the runner never writes: {type(error).__name__}") from error
    return Observation(tuple(events), max(0, min(dropped, 10**9)))


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise BadFrame("name of an event that is no text")
    return "".join(c if c.isprintable() else "�" for c in name[:MAX_NAME]) or "(no name)"


def _event(row: Any, names: list[str]) -> Event:
    name, kind, start, duration, track = row
    whole = all(type(value) is int and value >= 0 for value in row)
    if not whole or max(start, duration) > MAX_NANOSECONDS or track > 2**31:
        raise BadFrame("event of a profiler that the runner never writes")
    return Event(names[name], KINDS[kind], start, duration, track)
