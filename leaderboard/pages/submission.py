"""One submission as its page shows it: the verdict of the chosen evaluation with everything the report says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evaluator.contract import Code, PhaseStatus, RankProfile, RankResult, Report
from leaderboard import traces
from leaderboard.access import is_inside, is_member, may_see_source
from leaderboard.models import (
    Artifact,
    ArtifactKind,
    Attempt,
    AttemptState,
    Evaluation,
    Review,
    Submission,
    Track,
    Verdict,
)
from leaderboard.pages import outcome
from leaderboard.pages.differences import Difference, between
from leaderboard.pages.outcome import PHASE_TEXTS, State
from leaderboard.pages.queue import retriable_in

PHASE_STATES = {
    PhaseStatus.PASSED: ("good", "✓", "passed"),
    PhaseStatus.FAILED: ("bad", "✗", "failed"),
    PhaseStatus.SKIPPED: ("calm", "–", "skipped"),
}


@dataclass(frozen=True)
class PhaseCell:
    text: str
    tone: str
    sign: str
    status: str
    seconds: float
    detail: str


@dataclass(frozen=True)
class TraceRow:
    """The trace of a rank: ``artifact`` None while no part of it has come."""

    rank: RankProfile
    artifact: Artifact | None

    @property
    def here(self) -> bool:
        """True if the file can be downloaded."""
        return self.artifact is not None and traces.path_of(self.artifact) is not None


@dataclass(frozen=True)
class MapRow:
    """A trial, and for each rank whether it failed there."""

    trial: str
    failed: list[bool]


@dataclass(frozen=True)
class SubmissionPage:
    submission: Submission
    member: bool
    source_visible: bool
    evaluation: Evaluation | None
    evaluations: list[Evaluation]
    state: State
    verdict: Verdict | None
    report: Report | None
    attempts: list[Attempt]
    reviews: list[Review]
    rank: RankResult | None
    steps: list[Submission]
    retriable: int
    may_retry: bool
    traces: list[TraceRow]

    @property
    def live(self) -> bool:
        return not self.state.final

    @property
    def waits_because(self) -> str:
        """Why the file waits although a worker was there: its host could not serve it. "" if that is not so."""
        return next((a.note for a in self.attempts if a.state == AttemptState.QUEUED and a.wait_until), "")

    @property
    def phases(self) -> list[PhaseCell]:
        """The phases of the report, in the order in which they ran."""
        if self.report is None:
            return []
        return [
            PhaseCell(PHASE_TEXTS[p.phase], *PHASE_STATES[p.status], p.seconds, p.detail) for p in self.report.phases
        ]

    @property
    def difference(self) -> Difference | None:
        """What the agent changed since its step before; None for a first step, and for those who may not see files."""
        earlier = [step for step in self.steps if step.step < self.submission.step]
        if not earlier or not self.source_visible:
            return None
        old, new = earlier[-1], self.submission
        names = {"old_name": f"step {old.step}", "new_name": f"step {new.step}"}
        return between(old.source.text, new.source.text, **names)

    @property
    def error_map(self) -> list[MapRow]:
        """Which rank failed in which trial, where the report says so of any; rows are trials, columns ranks."""
        if self.report is None or not any(case.ranks_failed for case in self.report.cases):
            return []
        ranks = [result.rank for result in self.report.ranks]
        return [MapRow(case.name, [rank in case.ranks_failed for rank in ranks]) for case in self.report.cases]

    @property
    def samples(self) -> list[tuple[Sequence[float], Sequence[float]]]:
        """(reference, candidate) samples of each block pair, in seconds."""
        timing = self.report.timing if self.report else None
        return [(pair.reference, pair.candidate) for pair in timing.pairs] if timing else []


def read(submission: Submission, user: Any, evaluation_id: str = "", rank: str = "") -> SubmissionPage:
    """The page of ``submission`` in the evaluation ``evaluation_id`` (else the newest), with the log of ``rank``.

    Without ``rank``, or for one that there is not, it is the log of the rank that failed first, or of rank 0.
    """
    evaluations = list(submission.run.evaluations.select_related("target", "suite").order_by("-created_at"))
    chosen = next((e for e in evaluations if e.public_id == evaluation_id), evaluations[0] if evaluations else None)
    attempts = list(
        submission.attempts.filter(evaluation=chosen).select_related("worker").order_by("-number") if chosen else []
    )
    verdict = submission.verdicts.filter(evaluation=chosen).first()
    report = _report(verdict)
    return SubmissionPage(
        submission=submission,
        member=is_member(user, submission.run.team),
        source_visible=may_see_source(user, submission),
        evaluation=chosen,
        evaluations=evaluations,
        state=outcome.of_verdict(verdict) if verdict else outcome.of_attempt(attempts[0] if attempts else None),
        verdict=verdict,
        report=report,
        attempts=attempts,
        reviews=list(verdict.reviews.all()) if verdict else [],
        rank=_chosen(report.ranks, rank) if report else None,
        steps=_steps(submission),
        retriable=retriable_in(chosen) if chosen and verdict and verdict.code == Code.HARNESS_FAILURE else 0,
        may_retry=is_inside(user, submission.run.team),
        traces=_traces(report),
    )


def _steps(submission: Submission) -> list[Submission]:
    """All steps of the agent on this problem, in order; none in other tracks."""
    if submission.run.track != Track.AGENTIC:
        return []
    siblings = Submission.objects.filter(run=submission.run_id, problem=submission.problem_id)
    return list(siblings.filter(sample=submission.sample).order_by("step"))


def _report(verdict: Verdict | None) -> Report | None:
    """The report from which the verdict was recorded. A verdict without one was given by the site itself."""
    if verdict is None:
        return None
    artifact = Artifact.objects.filter(attempt=verdict.attempt_id, kind=ArtifactKind.REPORT).first()
    return Report.model_validate_json(artifact.content) if artifact else None


def _traces(report: Report | None) -> list[TraceRow]:
    if report is None or report.profile is None:
        return []
    found = Artifact.objects.filter(attempt=report.attempt_id, kind=ArtifactKind.TRACE)
    by_name = {artifact.name: artifact for artifact in found}
    return [TraceRow(rank, by_name.get(f"rank {rank.rank}")) for rank in report.profile.ranks]


def _chosen(ranks: Sequence[RankResult], asked: str) -> RankResult | None:
    by_number = {str(result.rank): result for result in ranks}
    first = next((result for result in ranks if result.primary), by_number.get("0"))
    return by_number.get(asked, first)
