"""How fast: intervals, blocks, clocks, bounds."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from evaluator.contract.base import ContractModel, Name, Offset, Seconds, Sentence


class Interval(ContractModel):
    """A ratio reference/candidate with its 95 % interval; 1.2 means 1.2 times as fast as the baseline."""

    estimate: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    low: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    high: Annotated[float, Field(gt=0, allow_inf_nan=False)]

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.low <= self.estimate <= self.high:
            raise ValueError(f"interval out of order: {self.low} <= {self.estimate} <= {self.high} does not hold")
        return self


class Bound(ContractModel):
    """Roofline of one shape on this target (seconds); utilisation = overlap bound / candidate time.

    ``peaks``: the vendor's figures, or rates measured on the host; only the former make a time impossible.
    """

    overlap_seconds: Seconds
    serial_seconds: Seconds
    limited_by: Literal["compute", "memory", "link", "latency"]
    utilisation: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    peaks: Literal["vendor", "measured"] = "vendor"


class BlockPair(ContractModel):
    """Raw samples of one pair of blocks, in seconds; every sample is the maximum over the ranks."""

    reference: Annotated[tuple[Seconds, ...], Field(min_length=1, max_length=1_000)]
    candidate: Annotated[tuple[Seconds, ...], Field(min_length=1, max_length=1_000)]
    reference_first: bool


class ClockCheck(ContractModel):
    """The ranks' own clocks against the judge's: judge's time of a call minus the ranks' own, in seconds per call.

    ``low`` to ``high`` is the band that calls which do nothing and the reference's calls gave on this host, widened by
    the noise; ``reference`` and ``candidate`` are what their blocks gave. ``source`` says whose times the samples are:
    the judge's (CPU; then a disagreement is a remark), or events on the device (then it is a finding).
    """

    source: Literal["judge", "events"]
    noop_seconds: Seconds = Field(description="the judge's time of a call that does nothing")
    low: Offset
    high: Offset
    reference: Offset
    candidate: Offset
    agrees: bool


class Throughput(ContractModel):
    """Calls back to back, the public benchmark's way: mean seconds per call after a warm-up."""

    warmup_calls: Annotated[int, Field(ge=0)]
    calls: Annotated[int, Field(ge=1)]
    verified_calls: Annotated[int, Field(ge=0)] = Field(
        description="of the candidate; chosen at random, checked in full"
    )
    reference_seconds: Seconds
    candidate_seconds: Seconds


class Timing(ContractModel):
    """The paired comparison. ``decision_interval`` is at 99.75 % per look, ``interval`` of the report at 95 %."""

    baseline: Name = Field(default="eager", description="what the headline is against: eager, compile or symm_mem")
    eager_over_baseline: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="time of the eager reference / time of the baseline, when the baseline was chosen"
    )
    baseline_note: Sentence = Field(default="", description="why this baseline")
    pairs: Annotated[tuple[BlockPair, ...], Field(max_length=40)]
    calls_per_block: Annotated[int, Field(ge=1)]
    warmup_calls: Annotated[int, Field(ge=0)]
    void_blocks: Annotated[int, Field(ge=0)] = 0
    looks: Annotated[int, Field(ge=1, le=3)]
    decision_interval: Interval
    smallest_detectable: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        description="smallest speedup ratio above 1 that this measurement could have called faster"
    )
    reference_seconds: Seconds
    candidate_seconds: Seconds
    reference_skew_seconds: Seconds | None = Field(
        default=None, description="median time from the first rank's answer to the last one's"
    )
    candidate_skew_seconds: Seconds | None = None
    rotated_bytes: Annotated[int, Field(ge=0)] | None = Field(
        default=None, description="memory of all ranks over which inputs rotate"
    )
    cache_bytes: Annotated[int, Field(ge=0)] | None = Field(default=None, description="last-level cache")
    clock: ClockCheck | None = None
    throughput: Throughput | None = None
    warnings: Annotated[tuple[Sentence, ...], Field(max_length=20)] = ()


class Compatible(ContractModel):
    """The public PKB rule beside ours: allclose after float at 1e-2, bare ratio, back-to-back timing."""

    correct: bool | None = None
    reason: Sentence = Field(default="", description="'rounding' where only the public rule refuses")
    speedup: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
