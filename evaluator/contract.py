"""The contract between the web product and the GPU hosts: jobs, progress and reports, plain data.

Both sides validate with these models, so a message is either exactly this or refused. Nothing here imports torch,
Django or Celery. Times are seconds, sizes bytes, ranks 0-based.

History of the format (``CONTRACT_VERSION``):
1  first version. Since then, with defaults: bounds and times of single trials; of the timing its clock check, rank
   skew, throughput figure, rotation of inputs, and the choice of the baseline.
"""

from __future__ import annotations

import hashlib
import hmac
from enum import StrEnum
from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, model_validator

CONTRACT_VERSION: Literal[1] = 1
PROTOCOL_VERSION = "1.0"  # of docs/methodology: how correctness and speed are decided

MAX_SOURCE_BYTES = 1_000_000
MAX_MESSAGE_BYTES = 4 * 1024 * 1024
MAX_RANKS = 16
MAX_TEXT = 16_384  # one traceback, dump or log tail
MAX_SENTENCE = 1_000

Text = Annotated[str, Field(max_length=MAX_TEXT)]
Sentence = Annotated[str, Field(max_length=MAX_SENTENCE)]
Seconds = Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)]
Offset = Annotated[float, Field(ge=-86_400, le=86_400, allow_inf_nan=False)]
Name = Annotated[str, Field(min_length=1, max_length=200)]
Rank = Annotated[int, Field(ge=0, lt=MAX_RANKS)]


class Code(StrEnum):
    """Outcome of an evaluation; docs/feedback.md explains each to submitters."""

    CORRECT = "correct"
    WRONG_VALUES = "wrong_values"
    IMPRECISE = "imprecise"
    WRONG_STRUCTURE = "wrong_structure"
    INVALID_FILE = "invalid_file"
    COMPILE_ERROR = "compile_error"
    IMPORT_ERROR = "import_error"
    RUNTIME_ERROR = "runtime_error"
    ILLEGAL_MEMORY_ACCESS = "illegal_memory_access"
    OUT_OF_MEMORY = "out_of_memory"
    DEADLOCK = "deadlock"
    TOO_SLOW = "too_slow"
    RACE = "race"
    IMPOSSIBLE_TIME = "impossible_time"
    INTEGRITY = "integrity"
    NEEDS_MULTICAST = "needs_multicast"
    NEEDS_RUNTIME = "needs_runtime"
    HARNESS_FAILURE = "harness_failure"


class Decision(StrEnum):
    """Outcome of the comparison with the baseline; ``NONE`` where no comparison was possible."""

    FASTER = "faster"
    SLOWER = "slower"
    TIE = "tie"
    NONE = "none"


class Phase(StrEnum):
    """Phases in the order in which they run; the first that fails gives the code."""

    STATIC = "static"
    COMPILE = "compile"
    IMPORT = "import"
    READY = "ready"
    TRIALS = "trials"
    TIMING = "timing"
    PROBES = "probes"
    CENSUS = "census"


class PhaseStatus(StrEnum):
    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


class Backend(StrEnum):
    CUDA = "cuda"
    TRITON = "triton"
    PARALLELKITTENS = "parallelkittens"
    PYTORCH = "pytorch"


class Precision(StrEnum):
    BF16 = "bf16"
    FP16 = "fp16"
    FP32 = "fp32"


class ContractModel(BaseModel):
    """Immutable, closed: an unknown field is an error, so that a newer sender is noticed and not half understood."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Limits(ContractModel):
    """Budgets of the phases, in seconds of wall clock. ``total`` is the hard cap of the whole evaluation."""

    compile: Seconds = 300
    ready: Seconds = 120
    call: Seconds = 30
    timing: Seconds = 600
    total: Seconds = 1_500


class Job(ContractModel):
    """One attempt at evaluating one file. Seeds are not in it: the judge draws them on the host."""

    contract_version: Literal[1] = CONTRACT_VERSION
    attempt_id: UUID
    attempt_number: Annotated[int, Field(ge=1, le=100)] = 1
    problem_id: Annotated[int, Field(ge=1, le=10_000)]
    problem_digest: Annotated[str, Field(max_length=64)] = Field(
        default="", description="sha256 of the problem version that must be evaluated; empty: whatever the host has"
    )
    target: Name
    world_size: Annotated[int, Field(ge=1, le=MAX_RANKS)]
    precision: Precision = Precision.FP32
    backend: Backend = Backend.PYTORCH
    file_name: Name
    source: Annotated[str, Field(max_length=MAX_SOURCE_BYTES)]
    profile: bool = Field(default=False, description="also record a trace per rank")
    limits: Limits = Limits()


class Progress(ContractModel):
    """A sign of life: doubles as the heartbeat that renews the lease of the attempt."""

    contract_version: Literal[1] = CONTRACT_VERSION
    attempt_id: UUID
    sequence: Annotated[int, Field(ge=0)]
    phase: Phase
    done: Annotated[int, Field(ge=0)] = 0
    total: Annotated[int, Field(ge=0)] = 0
    note: Sentence = ""


class Claim(ContractModel):
    """A worker has taken an attempt; from now on it owes a sign of life before every end of the lease."""

    contract_version: Literal[1] = CONTRACT_VERSION
    attempt_id: UUID
    attempt_number: Annotated[int, Field(ge=1, le=100)]
    host: Annotated[str, Field(max_length=200)] = ""


class Hello(ContractModel):
    """A sign of life of a worker, busy or not, with what it is."""

    contract_version: Literal[1] = CONTRACT_VERSION
    target: Name
    host: Annotated[str, Field(max_length=200)] = ""
    versions: dict[Name, Name] = Field(default_factory=dict, max_length=40)


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


class PhaseResult(ContractModel):
    phase: Phase
    status: PhaseStatus
    seconds: Seconds = 0
    detail: Sentence = ""


class RankResult(ContractModel):
    """What one rank did: how far it came, what it said, how far its outputs are from the expected ones."""

    rank: Rank
    reached: Phase
    error: Text = ""
    primary: bool = Field(default=False, description="the first rank that failed; errors of others may follow from it")
    line: Sentence = Field(
        default="", description="where the rank stood when it was stopped: 'solution.py:12 in solution'"
    )
    max_error: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = Field(
        default=None, description="largest error over all cases in units of rms(expected)"
    )
    bad_fraction: Annotated[float, Field(ge=0, le=1)] | None = None
    pattern: Sentence = ""
    log: Text = Field(default="", description="tail of what the rank printed")


class Bound(ContractModel):
    """Roofline of one shape on this target (seconds); utilisation = overlap bound / candidate time.

    ``peaks``: the vendor's figures, or rates measured on the host; only the former make a time impossible.
    """

    overlap_seconds: Seconds
    serial_seconds: Seconds
    limited_by: Literal["compute", "memory", "link", "latency"]
    utilisation: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    peaks: Literal["vendor", "measured"] = "vendor"


class CaseResult(ContractModel):
    """One correctness trial."""

    name: Name
    kind: Literal["public", "hidden", "stress", "structured", "timed"]
    passed: bool
    property: Sentence = Field(default="", description="what is particular about it; never seeds or hidden data")
    message: Sentence = ""
    ranks_failed: Annotated[tuple[Rank, ...], Field(max_length=MAX_RANKS)] = ()
    seconds: Seconds | None = Field(default=None, description="the judge's time of this one call")
    bound: Bound | None = None


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
    """The paired comparison. ``decision_interval`` is at 99.5 % per look, ``interval`` of the report at 95 %."""

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


class Isolation(ContractModel):
    """Which walls stood around the candidate. ``mode`` 'none' never counts on an official target."""

    mode: Literal["bwrap-root", "bwrap-user", "none"]
    uid: Annotated[int, Field(ge=0)] | None = None
    network: bool = Field(description="True if the network was unreachable")
    seccomp: bool
    cgroup: bool
    limits: dict[Name, Name] = Field(default_factory=dict, max_length=30)


class Report(ContractModel):
    """Result of one attempt. Which parts may be there depends on the code; see ``_parts_fit_code``."""

    contract_version: Literal[1] = CONTRACT_VERSION
    protocol_version: Name = PROTOCOL_VERSION
    attempt_id: UUID
    problem_id: Annotated[int, Field(ge=1)]
    problem_digest: Annotated[str, Field(max_length=64)]
    target: Name
    world_size: Annotated[int, Field(ge=1, le=MAX_RANKS)]
    precision: Precision
    code: Code
    decision: Decision = Decision.NONE
    speedup: Interval | None = None
    compatible: Compatible = Compatible()
    message: Sentence = Field(description="the verdict in one sentence")
    hints: Annotated[tuple[Sentence, ...], Field(max_length=20)] = ()
    failure_id: Annotated[str, Field(max_length=16)] = Field(
        default="", description="same failure, same id: hash of the normalised error"
    )
    phases: Annotated[tuple[PhaseResult, ...], Field(max_length=20)]
    ranks: Annotated[tuple[RankResult, ...], Field(max_length=MAX_RANKS)] = ()
    cases: Annotated[tuple[CaseResult, ...], Field(max_length=200)] = ()
    timing: Timing | None = None
    bound: Bound | None = None
    mechanisms: Annotated[tuple[Name, ...], Field(max_length=30)] = ()
    isolation: Isolation | None = None
    versions: dict[Name, Name] = Field(default_factory=dict, max_length=40)
    host: Annotated[str, Field(max_length=200)] = ""
    seconds: Seconds = Field(default=0, description="wall clock of the whole evaluation")
    scheduled_seconds: Seconds = Field(
        default=0, description="of these, the calls and pauses that the judge scheduled; the rest is overhead"
    )

    @model_validator(mode="after")
    def _parts_fit_code(self) -> Self:
        measured = self.timing is not None and self.speedup is not None
        if self.code is Code.CORRECT:
            if self.decision is not Decision.NONE and not measured:
                raise ValueError(f"decision {self.decision} without timing and speedup")
        elif self.decision is not Decision.NONE:
            raise ValueError(f"code {self.code} cannot carry the decision {self.decision}")
        elif self.code is not Code.IMPOSSIBLE_TIME and self.speedup is not None:
            raise ValueError(f"code {self.code} cannot carry a speedup")
        if self.code is not Code.HARNESS_FAILURE and not self.phases:
            raise ValueError(f"code {self.code} needs at least one phase")
        return self


class Signed(ContractModel):
    """A message from a worker, signed with its key: ``body`` is JSON text of the model that ``kind`` names."""

    worker: Name
    kind: Literal["progress", "report", "claim", "hello"]
    body: Annotated[str, Field(max_length=MAX_MESSAGE_BYTES)]
    mac: Annotated[str, Field(min_length=64, max_length=64)]

    @classmethod
    def seal(cls, *, worker: str, kind: Literal["progress", "report", "claim", "hello"], body: str, key: bytes) -> Self:
        return cls(worker=worker, kind=kind, body=body, mac=_mac(worker, kind, body, key))

    def verify(self, key: bytes) -> bool:
        """True if body, kind and worker name are what the holder of ``key`` signed."""
        return hmac.compare_digest(self.mac, _mac(self.worker, self.kind, self.body, key))


def _mac(worker: str, kind: str, body: str, key: bytes) -> str:
    text = f"{worker}\n{kind}\n{body}".encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest()
