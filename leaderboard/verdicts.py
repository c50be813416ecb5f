"""Turns reports into verdicts, and does what goes with a new verdict. Called by ``leaderboard.lifecycle`` only."""

from __future__ import annotations

import hashlib
from datetime import datetime

from evaluator.contract import Code, Decision, PhaseStatus, Report
from leaderboard.models import (
    Artifact,
    ArtifactKind,
    Attempt,
    Review,
    Standing,
    Verdict,
)

SUSPICIOUS = (Code.IMPOSSIBLE_TIME, Code.INTEGRITY)


def from_report(attempt: Attempt, report: Report, at: datetime) -> Verdict:
    """The verdict that a report stands for, not yet saved."""
    timing, bound, speedup = report.timing, report.bound, report.speedup
    return Verdict(
        evaluation=attempt.evaluation,
        submission=attempt.submission,
        attempt=attempt,
        problem_id=attempt.submission.problem_id,
        target_id=attempt.evaluation.target_id,
        code=report.code,
        decision=report.decision,
        standing=_standing(attempt, report),
        message=report.message,
        failure_id=report.failure_id,
        failed_phase=next((part.phase for part in report.phases if part.status is PhaseStatus.FAILED), ""),
        speedup=speedup.estimate if speedup else None,
        speedup_low=speedup.low if speedup else None,
        speedup_high=speedup.high if speedup else None,
        reference_seconds=timing.reference_seconds if timing else None,
        candidate_seconds=timing.candidate_seconds if timing else None,
        bound_seconds=bound.overlap_seconds if bound else None,
        serial_bound_seconds=bound.serial_seconds if bound else None,
        utilisation=bound.utilisation if bound else None,
        compatible_correct=report.compatible.correct,
        compatible_speedup=report.compatible.speedup,
        mechanisms=list(report.mechanisms),
        census=report.census.model_dump(mode="json") if report.census else None,
        seconds=report.seconds,
        created_at=at,
    )


def _standing(attempt: Attempt, report: Report) -> Standing:
    """Suspicious ones wait for a person; who sends the baseline in again does not rank, unless it is the baseline."""
    if report.code in SUSPICIOUS:
        return Standing.HELD
    same = report.similarity is not None and report.similarity.label != ""
    if same and report.code is Code.CORRECT and not attempt.evaluation.run.model.is_baseline:
        return Standing.DUPLICATE
    return Standing.COUNTED


def harness_failure(attempt: Attempt, reason: str, at: datetime) -> Verdict:
    """The verdict of a submission that we failed to judge, not yet saved."""
    message = f"Not judged: {attempt.number} attempts failed for reasons of ours, not of the file. Last: {reason}"
    return Verdict(
        evaluation=attempt.evaluation,
        submission=attempt.submission,
        attempt=attempt,
        problem_id=attempt.submission.problem_id,
        target_id=attempt.evaluation.target_id,
        code=Code.HARNESS_FAILURE,
        decision=Decision.NONE,
        message=message[:1_000],
        seconds=0,
        created_at=at,
    )


def keep_report(attempt: Attempt, report: Report) -> Artifact:
    """Store the whole report."""
    content = report.model_dump_json()
    data = content.encode()
    return Artifact.objects.create(
        attempt=attempt,
        kind=ArtifactKind.REPORT,
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        content=content,
    )


def hold_if_suspicious(verdict: Verdict) -> None:
    """Open a review for a verdict that a person must look at before it is final."""
    if verdict.standing == Standing.HELD:
        Review.objects.create(verdict=verdict, reason=verdict.message)
