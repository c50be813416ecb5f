"""Reports as a judge would write them, for tests."""

from __future__ import annotations

from typing import Any

from evaluator.contract import BlockPair, Bound, Code, Compatible, Decision, Interval, PhaseResult, Report, Timing
from leaderboard import dispatch
from leaderboard.models import Attempt


def report_for(attempt: Attempt, **changes: Any) -> Report:
    """Correct and twice as fast as the baseline; ``changes`` replace fields. A failure code drops the timing."""
    fields: dict[str, Any] = {
        "attempt_id": attempt.pk,
        "problem_id": attempt.submission.problem.number,
        "problem_digest": dispatch.digest_for(attempt),
        "target": attempt.evaluation.target.name,
        "world_size": attempt.evaluation.target.world_size,
        "precision": attempt.submission.run.precision,
        "code": Code.CORRECT,
        "message": "Correct on every rank.",
        "phases": (PhaseResult(phase="static", status="passed"),),
        "host": "gpu-host",
        "seconds": 12.5,
    }
    if changes.get("code", Code.CORRECT) == Code.CORRECT:
        fields |= {
            "decision": Decision.FASTER,
            "speedup": Interval(estimate=2.0, low=1.9, high=2.1),
            "compatible": Compatible(correct=True, speedup=2.2),
            "timing": TIMING,
            "bound": Bound(overlap_seconds=1e-3, serial_seconds=2e-3, limited_by="link", utilisation=0.5),
        }
    return Report(**(fields | changes))


TIMING = Timing(
    pairs=(BlockPair(reference=(4e-3,), candidate=(2e-3,), reference_first=True),),
    calls_per_block=1,
    warmup_calls=5,
    looks=1,
    decision_interval=Interval(estimate=2.0, low=1.8, high=2.2),
    smallest_detectable=1.1,
    reference_seconds=4e-3,
    candidate_seconds=2e-3,
)
