"""What came of an attempt."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from uuid import UUID

from pydantic import Field, model_validator

from evaluator.contract.base import (
    CONTRACT_VERSION,
    MAX_RANKS,
    PROTOCOL_VERSION,
    Code,
    ContractModel,
    Decision,
    Name,
    Phase,
    PhaseStatus,
    Precision,
    Rank,
    Seconds,
    Sentence,
    Text,
)
from evaluator.contract.measurement import Bound, Compatible, Interval, Timing
from evaluator.contract.observation import Census, Profile, Similarity


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
