"""The contract between the web product and the GPU hosts: jobs, progress and reports, plain data.

Both sides validate with these models, so a message is either exactly this or refused. Nothing here imports torch,
Django or Celery. Times are seconds, sizes bytes, ranks 0-based.

History of the format (``CONTRACT_VERSION``):
1  first version. Since then, with defaults: bounds and times of single trials; of the timing its clock check, rank
   skew, throughput figure, rotation of inputs, and the choice of the baseline; of a job, ids for the logs and whether
   it is a canary; of a hello, suite, protocol and hardware; the messages decline and canary; orders; of the report,
   census, similarity to the reference and profile; the message trace.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
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
TRACE_PART_BYTES = 1_500_000  # of a gzipped trace; in base64 and quoted once more it stays below MAX_MESSAGE_BYTES
MAX_TRACE_PARTS = 2
MAX_TRACE_BYTES = MAX_TRACE_PARTS * TRACE_PART_BYTES

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
    canary: bool = Field(default=False, description="a known file that checks the host; nobody's score depends on it")
    run_id: Annotated[str, Field(max_length=40)] = Field(default="", description="for the host's log only")
    submission_id: Annotated[str, Field(max_length=40)] = Field(default="", description="for the host's log only")


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


class Decline(ContractModel):
    """A worker gives an attempt back untouched: it cannot serve it, another host may. Counts against nobody."""

    contract_version: Literal[1] = CONTRACT_VERSION
    attempt_id: UUID
    reason: Sentence


class Hello(ContractModel):
    """A sign of life of a worker, busy or not, with what it is."""

    contract_version: Literal[1] = CONTRACT_VERSION
    protocol_version: Annotated[str, Field(max_length=20)] = ""
    suite_digest: Annotated[str, Field(max_length=64)] = Field(
        default="", description="of all its problem versions, see suite_digest(); empty: it does not know"
    )
    target: Name
    host: Annotated[str, Field(max_length=200)] = ""
    versions: dict[Name, Name] = Field(default_factory=dict, max_length=40)
    devices: Annotated[tuple[Name, ...], Field(max_length=MAX_RANKS)] = Field(
        default=(), description="model of every GPU, or of the CPU"
    )
    topology: Sentence = Field(default="", description="links between the GPUs, such as 'NV18 between all'")
    refuses: Sentence = Field(default="", description="why it takes no work although it may; empty: it does")


class Orders(ContractModel):
    """What the site wants of one worker, left in the broker for it to read; a GPU host has no database.

    A worker that has never read any takes no work.
    """

    contract_version: Literal[1] = CONTRACT_VERSION
    takes_work: bool
    reason: Sentence = Field(default="", description="why it takes none")
    protocol_version: Annotated[str, Field(max_length=20)] = ""
    suite_digest: Annotated[str, Field(max_length=64)] = ""

    def refusal(self, hello: Hello) -> str:
        """Why the worker that says ``hello`` takes no work under these orders, as a sentence; "" if it does."""
        if not self.takes_work:
            return self.reason or "The site gives it no work."
        pairs = (
            ("protocol", self.protocol_version, hello.protocol_version),
            ("suite", self.suite_digest[:12], hello.suite_digest[:12]),
        )
        for what, wanted, has in pairs:
            if wanted and wanted != has:
                return f"It has {what} {has or 'unknown'}, the site asks for {wanted}: bring it to the site's release."
        return hello.refuses


def suite_digest(problems: Iterable[tuple[int, str]]) -> str:
    """sha256 over (id, digest) of every problem version of a suite; "" of none."""
    lines = [f"{number} {digest}" for number, digest in sorted(problems)]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest() if lines else ""


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
    census: Census | None = None
    similarity: Similarity | None = None
    profile: Profile | None = None
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


Kind = Literal["progress", "report", "claim", "hello", "decline", "canary", "trace"]
"""What a worker says: ``canary`` is the Report of a canary, ``trace`` a TracePart, the others the models so named."""


class Signed(ContractModel):
    """A message from a worker, signed with its key: ``body`` is JSON text of the model that ``kind`` names."""

    worker: Name
    kind: Kind
    body: Annotated[str, Field(max_length=MAX_MESSAGE_BYTES)]
    mac: Annotated[str, Field(min_length=64, max_length=64)]

    @classmethod
    def seal(cls, *, worker: str, kind: Kind, body: str, key: bytes) -> Self:
        return cls(worker=worker, kind=kind, body=body, mac=_mac(worker, kind, body, key))

    def verify(self, key: bytes) -> bool:
        """True if body, kind and worker name are what the holder of ``key`` signed."""
        return hmac.compare_digest(self.mac, _mac(self.worker, self.kind, self.body, key))


def _mac(worker: str, kind: str, body: str, key: bytes) -> str:
    text = f"{worker}\n{kind}\n{body}".encode()
    return hmac.new(key, text, hashlib.sha256).hexdigest()
