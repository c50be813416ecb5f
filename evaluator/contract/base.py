"""Limits, types and words that all messages share."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

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
