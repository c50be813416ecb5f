"""torch's profiler around calls that nobody times, and its events as one small JSON text.

Written for the judge as ``evaluator.judge.observations`` reads it. Not on timed calls: the profiler slows them.
"""

from __future__ import annotations

import json
import re
from typing import Any

import torch
from torch._C._autograd import DeviceType
from torch.autograd import profiler

KINDS = ("call", "cpu_op", "annotation", "kernel", "copy", "set", "runtime")
"""Kinds of events; a row names its kind by the place here."""

MARK = "pkb: call"
MAX_NAME = 200
_RUNTIME = re.compile(r"cu(da)?[A-Z]")
CALL, OPERATION, ANNOTATION, KERNEL, COPY, SET, RUNTIME = range(len(KINDS))


class Watch:
    """One run of the profiler, from the making of this on: calls inside ``call``, then ``record``."""

    def __init__(self, device: torch.device) -> None:
        kind = None if device.type == "cpu" else device.type
        self._profiler: Any = profiler.profile(use_device=kind, use_kineto=True)
        self._profiler.__enter__()  # type: ignore[no-untyped-call]

    def call(self) -> profiler.record_function:
        """Marks what runs inside as a call."""
        return profiler.record_function(MARK)

    def record(self, capacity: int) -> bytes:
        """Ends the profiler; its events as JSON of at most ``capacity`` bytes. What does not fit is counted."""
        self._profiler.__exit__(None, None, None)
        return packed(self._profiler.kineto_results.events(), capacity)


def packed(events: list[Any], capacity: int) -> bytes:
    """Events of kineto as JSON in the judge's format, the earliest ones if not all fit."""
    names: dict[str, int] = {}
    rows: list[list[int]] = []
    ordered = sorted(events, key=lambda event: event.start_ns())
    room, dropped = capacity - 64, 0
    for number, event in enumerate(ordered):
        kind, name = kind_of(event), event.name()[:MAX_NAME]
        if kind is None:
            continue
        track = event.device_resource_id() if kind in (KERNEL, COPY, SET) else event.start_thread_id()
        start = event.start_ns() - ordered[0].start_ns()
        row = [names.get(name, len(names)), kind, start, event.duration_ns(), track]
        room -= len(json.dumps(row)) + (0 if name in names else len(json.dumps(name)) + 1)
        if room < 0:
            dropped = len(ordered) - number
            break
        names.setdefault(name, len(names))
        rows.append(row)
    return json.dumps({"names": list(names), "events": rows, "dropped": dropped}, separators=(",", ":")).encode()


def kind_of(event: Any) -> int | None:
    """Place of an event's kind in ``KINDS``; None for one that only mirrors another on the device."""
    name = event.name()
    if event.device_type() != DeviceType.CPU:
        if event.is_user_annotation():
            return None
        return COPY if name.startswith("Memcpy") else SET if name.startswith("Memset") else KERNEL
    if event.is_user_annotation():
        return CALL if name == MARK else ANNOTATION
    return RUNTIME if _RUNTIME.match(name) else OPERATION
