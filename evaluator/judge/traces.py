"""Traces for people: what a profiler saw on a rank as a file that Perfetto and Chrome open, and how to read it.

The file is written here, from events that were read within limits; nothing of the sandbox's own text goes into it but
the names of operations.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from evaluator.contract import MAX_TRACE_BYTES, TRACE_PART_BYTES, Profile, RankProfile, TracePart
from evaluator.judge.census import Timeline, overlap_of, timeline
from evaluator.judge.mechanisms import Scan
from evaluator.judge.observations import Event, Observation
from evaluator.judge.spans import intersection, length

LEVEL = 6
_ON_DEVICE = ("kernel", "copy", "set")


@dataclass(frozen=True)
class Trace:
    """The gzipped file of one rank."""

    rank: int
    data: bytes
    events: int
    dropped: int

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()

    def parts(self, attempt_id: UUID) -> list[TracePart]:
        """The trace as messages."""
        pieces = [self.data[at : at + TRACE_PART_BYTES] for at in range(0, len(self.data), TRACE_PART_BYTES)]
        return [
            TracePart(
                attempt_id=attempt_id,
                rank=self.rank,
                part=number,
                parts=len(pieces),
                size=len(self.data),
                sha256=self.sha256,
                data=base64.b64encode(piece).decode("ascii"),
            )
            for number, piece in enumerate(pieces)
        ]


def trace_of(rank: int, observation: Observation, limit: int = MAX_TRACE_BYTES) -> Trace:
    """The trace of a rank in at most ``limit`` bytes; the latest events are left out if that is too little."""
    events = list(observation.events)
    while True:
        data = gzip.compress(_json(rank, events), LEVEL, mtime=0)
        if len(data) <= limit or not events:
            break
        # The file grows about evenly with the events; a little less, so that the next try mostly fits.
        events = events[: min(len(events) - 1, int(0.9 * len(events) * limit / len(data)))]
    return Trace(rank, data, len(events), observation.dropped + len(observation.events) - len(events))


def _json(rank: int, events: Sequence[Event]) -> bytes:
    """The trace event format: complete events ("X") in microseconds, one track for each thread or stream."""
    rows: list[dict[str, object]] = [_named("process_name", rank, 0, f"rank {rank}")]
    tracks = sorted({_track(event) for event in events})
    rows += [_named("thread_name", rank, place, name) for place, name in enumerate(tracks)]
    places = {name: place for place, name in enumerate(tracks)}
    rows += [
        {
            "ph": "X",
            "name": event.name,
            "cat": event.kind,
            "pid": rank,
            "tid": places[_track(event)],
            "ts": event.start / 1e3,
            "dur": event.duration / 1e3,
        }
        for event in events
    ]
    return json.dumps({"traceEvents": rows, "displayTimeUnit": "ms"}, separators=(",", ":")).encode()


def _track(event: Event) -> str:
    return f"stream {event.track}" if event.kind in _ON_DEVICE else f"thread {event.track}"


def _named(what: str, rank: int, track: int, name: str) -> dict[str, object]:
    return {"ph": "M", "name": what, "pid": rank, "tid": track, "args": {"name": name}}


def profile_of(observations: Sequence[Observation], traces: Sequence[Trace], scan: Scan) -> Profile | None:
    """What the traces show, by rank and in words; None if no call was recorded."""
    calls = min((len(o.calls) for o in observations), default=0)
    if calls == 0:
        return None
    lines = [timeline(observation, scan) for observation in observations]
    ranks = tuple(
        _rank_profile(trace, line, len(observation.calls))
        for trace, line, observation in zip(traces, lines, observations, strict=True)
    )
    return Profile(reading=reading(ranks, lines), calls=calls, ranks=ranks)


def _rank_profile(trace: Trace, line: Timeline, calls: int) -> RankProfile:
    def per_call(spans: list[tuple[int, int]]) -> float:
        return length(spans) / calls / 1e9

    return RankProfile(
        rank=trace.rank,
        call_seconds=per_call(line.window),
        compute_seconds=per_call(line.compute),
        communication_seconds=per_call(line.communication),
        overlapped_seconds=per_call(intersection(line.compute, line.communication)),
        gap_seconds=per_call(line.gap),
        events=trace.events,
        dropped=trace.dropped,
        trace_bytes=len(trace.data),
        trace_sha256=trace.sha256,
    )


def reading(ranks: Sequence[RankProfile], lines: Sequence[Timeline]) -> str:
    """One paragraph: where the time of a call goes, on which rank most, how much of it overlaps, what to try."""
    total = sum(rank.call_seconds for rank in ranks)

    def mean(name: str) -> float:
        return math.fsum(getattr(rank, name) for rank in ranks) / len(ranks)

    def share(name: str) -> float:
        return mean(name) * len(ranks) / total if total else 0.0

    overlap = overlap_of(lines)
    longest = max(ranks, key=lambda rank: rank.communication_seconds)
    sentences = [
        f"Under the profiler, which slows it, a call takes {_time(mean('call_seconds'))} in the mean of "
        f"{len(ranks)} ranks.",
        f"Of that, {share('communication_seconds'):.0%} is communication, {share('compute_seconds'):.0%} compute and "
        f"{share('gap_seconds'):.0%} gaps, in which nothing that the profiler sees runs.",
    ]
    if overlap is not None:
        sentences.append(
            f"Communication and compute go on together for {_time(mean('overlapped_seconds'))}, {overlap:.0%} of what "
            "could overlap."
        )
    if longest.communication_seconds > 1.25 * mean("communication_seconds"):
        sentences.append(
            f"Rank {longest.rank} spends most time in communication ({_time(longest.communication_seconds)}); that "
            "includes waiting in a collective for the last rank to come."
        )
    sentences.append(_advice(share("communication_seconds"), share("gap_seconds"), overlap, lines))
    dropped = sum(rank.dropped for rank in ranks)
    if dropped:
        sentences.append(f"{dropped} events did not fit into the traces.")
    return " ".join(sentences)


def _advice(communication: float, gap: float, overlap: float | None, lines: Sequence[Timeline]) -> str:
    if gap > max(communication, 1 - communication - gap):
        where = "launches" if any(line.on_device for line in lines) else "Python and code that is no operation of torch"
        return f"The gaps are the largest part: time in {where}; fewer and larger pieces of work would shorten them."
    if communication > 0.5 and (overlap is None or overlap < 0.5):
        return (
            "Communication is the largest part and little of it is hidden: starting it earlier, in pieces, would help."
        )
    if communication > 0.5:
        return "Communication is the largest part and mostly hidden: what remains is the volume and the waiting."
    return "Compute is the largest part: the operations with the longest times in the census are the place to look."


def _time(seconds: float) -> str:
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} µs"
