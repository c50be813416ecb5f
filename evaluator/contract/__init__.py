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

from evaluator.contract.base import (
    CONTRACT_VERSION,
    MAX_MESSAGE_BYTES,
    MAX_RANKS,
    MAX_SENTENCE,
    MAX_SOURCE_BYTES,
    MAX_TEXT,
    MAX_TRACE_BYTES,
    MAX_TRACE_PARTS,
    PROTOCOL_VERSION,
    TRACE_PART_BYTES,
    Backend,
    Code,
    ContractModel,
    Decision,
    Name,
    Offset,
    Phase,
    PhaseStatus,
    Precision,
    Rank,
    Seconds,
    Sentence,
    Text,
)
from evaluator.contract.measurement import (
    BlockPair,
    Bound,
    ClockCheck,
    Compatible,
    Interval,
    Throughput,
    Timing,
)
from evaluator.contract.observation import (
    Census,
    CensusEntry,
    Origin,
    OriginShare,
    Profile,
    RankProfile,
    Similarity,
    TracePart,
)
from evaluator.contract.report import CaseResult, Isolation, PhaseResult, RankResult, Report
from evaluator.contract.signed import Kind, Signed
from evaluator.contract.work import Claim, Decline, Hello, Job, Limits, Orders, Progress, suite_digest

__all__ = [
    "CONTRACT_VERSION",
    "MAX_MESSAGE_BYTES",
    "MAX_RANKS",
    "MAX_SENTENCE",
    "MAX_SOURCE_BYTES",
    "MAX_TEXT",
    "MAX_TRACE_BYTES",
    "MAX_TRACE_PARTS",
    "PROTOCOL_VERSION",
    "TRACE_PART_BYTES",
    "Backend",
    "BlockPair",
    "Bound",
    "CaseResult",
    "Census",
    "CensusEntry",
    "Claim",
    "ClockCheck",
    "Code",
    "Compatible",
    "ContractModel",
    "Decision",
    "Decline",
    "Hello",
    "Interval",
    "Isolation",
    "Job",
    "Kind",
    "Limits",
    "Name",
    "Offset",
    "Orders",
    "Origin",
    "OriginShare",
    "Phase",
    "PhaseResult",
    "PhaseStatus",
    "Precision",
    "Profile",
    "Progress",
    "Rank",
    "RankProfile",
    "RankResult",
    "Report",
    "Seconds",
    "Sentence",
    "Signed",
    "Similarity",
    "Text",
    "Throughput",
    "Timing",
    "TracePart",
    "suite_digest",
]
