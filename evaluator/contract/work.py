"""What is to be done, and what a worker says of itself: jobs, claims, signs of life, orders."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from evaluator.contract.base import (
    CONTRACT_VERSION,
    MAX_RANKS,
    MAX_SOURCE_BYTES,
    Backend,
    ContractModel,
    Name,
    Phase,
    Precision,
    Seconds,
    Sentence,
)


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
