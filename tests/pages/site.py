"""What the tests of pages stand on: a small site with people at every distance from one run."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass

from django.conf import settings
from django.test import Client

from evaluator.contract import (
    BlockPair,
    Bound,
    CaseResult,
    Census,
    CensusEntry,
    Code,
    Interval,
    Isolation,
    OriginShare,
    Phase,
    PhaseResult,
    PhaseStatus,
    RankResult,
    Report,
    Timing,
)
from leaderboard import traces, verdicts
from leaderboard.models import Artifact, ArtifactKind, Evaluation, Run, Submission, Team, User, Verdict
from problems.models import Suite

CENSUS = Census(
    unit="operations",
    calls=3,
    call_seconds=0.004,
    per_call=2,
    origins=(
        OriginShare(origin="communication", seconds=0.002, share=0.5),
        OriginShare(origin="library", seconds=0.001, share=0.25),
        OriginShare(origin="gap", seconds=0.001, share=0.25),
    ),
    entries=(CensusEntry(name="c10d::allreduce_", origin="communication", per_call=1, seconds=0.002),),
    overlap=0.125,
)


@dataclass
class Site:
    suite: Suite
    team: Team
    owner: User
    member: User
    stranger: User
    maintainer: User
    evaluation: Evaluation

    @property
    def run(self) -> Run:
        return self.evaluation.run

    @property
    def submission(self) -> Submission:
        submission = self.run.submissions.order_by("problem__number").first()
        assert submission is not None
        return submission

    def client(self, who: str) -> Client:
        """A browser of ``who``: anonymous, stranger, member, owner or maintainer."""
        client = Client()
        if who != "anonymous":
            client.force_login(getattr(self, who), backend="django.contrib.auth.backends.ModelBackend")
        return client


def with_report(verdict: Verdict) -> Artifact:
    """Give the verdict the report that it might have come from, with every part that its code allows."""
    correct = verdict.code == Code.CORRECT
    ranks = tuple(
        RankResult(
            rank=rank,
            reached=Phase.TIMING if correct else Phase.TRIALS,
            primary=not correct and rank == 1,
            error="" if correct else f"Traceback of rank {rank}",
            line="" if correct else "solution.py:12 in solution",
            max_error=0.0 if correct else 0.5,
            bad_fraction=0.0 if correct else 0.25,
            pattern="" if correct else "exactly rank 3's share missing",
            log=f"rank {rank} says hello",
        )
        for rank in range(4)
    )
    phases = [PhaseResult(phase=phase, status=PhaseStatus.PASSED, seconds=1.5) for phase in list(Phase)[:4]]
    trials = PhaseStatus.PASSED if correct else PhaseStatus.FAILED
    timing = PhaseStatus.PASSED if correct else PhaseStatus.SKIPPED
    report = Report(
        attempt_id=verdict.attempt_id,
        problem_id=verdict.submission.problem.number,
        problem_digest="ab" * 32,
        target="cpu-gloo",
        world_size=4,
        precision="fp32",
        code=verdict.code,
        decision=verdict.decision,
        speedup=_interval(verdict.speedup) if correct else None,
        message=verdict.message,
        hints=() if correct else ("Look at the last rank.",),
        phases=(
            *phases,
            PhaseResult(phase=Phase.TRIALS, status=trials, seconds=3, detail="5 trials"),
            PhaseResult(phase=Phase.TIMING, status=timing),
        ),
        ranks=ranks,
        cases=(
            CaseResult(name="public", kind="public", passed=True, property="public shape"),
            CaseResult(
                name="hidden",
                kind="hidden",
                passed=correct,
                message="" if correct else "25 % is bad",
                ranks_failed=() if correct else (3,),
            ),
        ),
        timing=_timing(verdict.speedup) if correct else None,
        bound=Bound(overlap_seconds=0.001, serial_seconds=0.002, limited_by="link", utilisation=0.5)
        if correct
        else None,
        census=CENSUS if correct else None,
        isolation=Isolation(mode="bwrap-user", uid=1000, network=True, seccomp=True, cgroup=False),
        versions={"torch": "2.13.0"},
        seconds=20,
    )
    return verdicts.keep_report(verdict.attempt, report)


def with_trace(submission: Submission, text: bytes = b"[]") -> Artifact:
    """A stored trace of rank 0 of the submission's only attempt."""
    attempt = submission.attempts.get()
    path = settings.DATA_DIR / traces.FOLDER / str(attempt.pk) / "rank_0.trace.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    data = gzip.compress(text, mtime=0)
    path.write_bytes(data)
    return Artifact.objects.create(
        attempt=attempt,
        kind=ArtifactKind.TRACE,
        name="rank 0",
        sha256=hashlib.sha256(data).hexdigest(),
        size=len(data),
        content_type=traces.CONTENT_TYPE,
        file=str(path.relative_to(settings.DATA_DIR)),
    )


def _interval(ratio: float) -> Interval:
    return Interval(estimate=ratio, low=ratio * 0.95, high=ratio * 1.05)


def _timing(ratio: float) -> Timing:
    pairs = tuple(
        BlockPair(
            reference=tuple(0.004 + 0.0001 * (sample + pair) for sample in range(5)),
            candidate=tuple(0.004 / ratio + 0.0001 * (sample + pair) for sample in range(5)),
            reference_first=pair % 2 == 0,
        )
        for pair in range(5)
    )
    return Timing(
        pairs=pairs,
        calls_per_block=5,
        warmup_calls=10,
        looks=1,
        decision_interval=_interval(ratio),
        smallest_detectable=1.08,
        reference_seconds=0.004,
        candidate_seconds=0.004 / ratio,
        warnings=("The machine was busy in one block.",),
    )
