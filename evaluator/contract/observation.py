"""What was seen on calls that decide nothing: census, likeness to the reference, profile and its traces."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import Field, model_validator

from evaluator.contract.base import (
    CONTRACT_VERSION,
    MAX_RANKS,
    MAX_TRACE_BYTES,
    MAX_TRACE_PARTS,
    TRACE_PART_BYTES,
    ContractModel,
    Name,
    Rank,
    Seconds,
)

Origin = Literal["own", "library", "communication", "copy", "framework", "gap"]
"""Whose work it is: kernels of the submission; a library (cuBLAS, oneDNN, CUTLASS …); collectives and copies between
ranks; copies within a rank; other operations of torch; nothing (launch gaps, Python, waiting)."""


class OriginShare(ContractModel):
    """Time during which at least one thing of this origin ran. Shares of things that overlap add up to more than 1."""

    origin: Origin
    seconds: Seconds = Field(description="per call, mean over ranks and calls")
    share: Annotated[float, Field(ge=0, le=1)] = Field(description="of the call")


class CensusEntry(ContractModel):
    """A kernel (on a GPU) or an operation (on a CPU) that the profiler saw."""

    name: Name
    origin: Origin
    per_call: Annotated[float, Field(ge=0, le=1e9)]
    seconds: Seconds = Field(description="per call, summed up")


class Census(ContractModel):
    """What a profiler saw in extra calls after the verdict was clear; told by the sandbox: evidence, no measurement.

    ``unit``: what was counted. The profiler slows calls, so shares count here, not seconds.
    """

    unit: Literal["kernels", "operations"]
    calls: Annotated[int, Field(ge=1, le=1_000)]
    call_seconds: Seconds
    per_call: Annotated[float, Field(ge=0, le=1e9)] = Field(description="kernels or operations per call and rank")
    origins: Annotated[tuple[OriginShare, ...], Field(max_length=6)]
    entries: Annotated[tuple[CensusEntry, ...], Field(max_length=20)] = Field(default=(), description="longest first")
    overlap: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="(compute + communication - both together) / the shorter of them; None without both"
    )
    dropped: Annotated[int, Field(ge=0)] = Field(default=0, description="events beyond what was recorded")


class Similarity(ContractModel):
    """How much the submission is the reference. ``label`` only where both signals say so; such an entry never ranks."""

    label: Literal["", "baseline duplicate", "wrapper"] = Field(
        default="", description="the same program under other names, or the same operations in the same order"
    )
    source: Annotated[float, Field(ge=0, le=1)] = Field(description="of the normalised programs")
    operations: Annotated[float, Field(ge=0, le=1)] | None = Field(
        default=None, description="of what both ran, by the profiler; None where that was not compared"
    )


class RankProfile(ContractModel):
    """Where a call's time went on one rank, in seconds per call, and the trace that shows it."""

    rank: Rank
    call_seconds: Seconds
    compute_seconds: Seconds
    communication_seconds: Seconds
    overlapped_seconds: Seconds = Field(description="of these two, the time in which both went on")
    gap_seconds: Seconds
    events: Annotated[int, Field(ge=0)]
    dropped: Annotated[int, Field(ge=0)] = Field(default=0, description="events that did not fit into the trace")
    trace_bytes: Annotated[int, Field(ge=0, le=MAX_TRACE_BYTES)]
    trace_sha256: Annotated[str, Field(min_length=64, max_length=64)]


class Profile(ContractModel):
    """Traces that were asked for, and how to read them."""

    reading: Annotated[str, Field(max_length=2_000)]
    calls: Annotated[int, Field(ge=1, le=1_000)]
    ranks: Annotated[tuple[RankProfile, ...], Field(max_length=MAX_RANKS)]


class TracePart(ContractModel):
    """A piece of one rank's trace (gzipped JSON of the trace event format). Parts of a trace may come in any order."""

    contract_version: Literal[1] = CONTRACT_VERSION
    attempt_id: UUID
    rank: Rank
    part: Annotated[int, Field(ge=0, lt=MAX_TRACE_PARTS)]
    parts: Annotated[int, Field(ge=1, le=MAX_TRACE_PARTS)]
    size: Annotated[int, Field(ge=1, le=MAX_TRACE_BYTES)] = Field(description="of the whole trace, in bytes")
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = Field(description="of the whole trace")
    data: Annotated[str, Field(max_length=TRACE_PART_BYTES * 4 // 3 + 4)] = Field(description="base64")

    @model_validator(mode="after")
    def _counted(self) -> Self:
        if self.part >= self.parts:
            raise ValueError(f"part {self.part} of {self.parts}")
        return self
