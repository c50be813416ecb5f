"""What must hold of a run once the site is well again. Every breach is a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

from django.utils import timezone

from leaderboard import scores
from leaderboard.models import (
    ACTIVE_STATES,
    Attempt,
    AttemptState,
    Evaluation,
    EvaluationState,
    QuotaEntry,
    Verdict,
)
from tests.chaos.cluster import LEASE_SECONDS

OVERDUE = timedelta(seconds=10 * LEASE_SECONDS)  # the reaper's patience while reports wait to be read


def wanted_code(text: str) -> str:
    """The code that the stub judge gives a source."""
    word = text.partition("# judge: ")[2].split()[0]
    return "correct" if word == "sleep" else word


def breaches(run_ids: Iterable[int]) -> list[str]:
    """What is wrong with the runs: empty if every submission has exactly one final verdict, rightly charged."""
    evaluations = Evaluation.objects.filter(run__in=list(run_ids)).select_related("run", "suite", "target")
    return [sentence for evaluation in evaluations for sentence in _of(evaluation)] + _overdue()


def _of(evaluation: Evaluation) -> list[str]:
    found = []
    name = f"evaluation {evaluation.public_id} ({evaluation.state})"
    verdicts = list(Verdict.objects.filter(evaluation=evaluation).select_related("submission__source", "attempt"))
    submissions = set(evaluation.run.submissions.values_list("pk", flat=True))
    counts = Counter(verdict.submission_id for verdict in verdicts)
    if evaluation.state == EvaluationState.COMPLETED and (set(counts) != submissions or set(counts.values()) != {1}):
        found.append(f"{name}: {len(submissions)} submissions, verdicts {sorted(counts.values())}")
    if evaluation.state not in (EvaluationState.COMPLETED, EvaluationState.CANCELLED):
        found.append(f"{name} is not over")
    active = Attempt.objects.filter(evaluation=evaluation, state__in=ACTIVE_STATES).count()
    if active:
        found.append(f"{name}: {active} attempts are still active")
    for verdict in verdicts:
        if verdict.code not in (wanted_code(verdict.submission.source.text), "harness_failure"):
            found.append(f"{name}: {verdict.code} for {verdict.submission.source.text!r}")
        if verdict.attempt.state != AttemptState.RECORDED:
            found.append(f"{name}: a verdict of an attempt that is {verdict.attempt.state}")
    found += _charges(evaluation, verdicts, name)
    if verdicts:
        found += [f"{name}: {difference}" for difference in scores.differences(evaluation)]
    return found


def _charges(evaluation: Evaluation, verdicts: list[Verdict], name: str) -> list[str]:
    charged = Counter(QuotaEntry.objects.filter(attempt__evaluation=evaluation).values_list("attempt", flat=True))
    due = Counter(verdict.attempt_id for verdict in verdicts if verdict.code != "harness_failure")
    return [] if charged == due else [f"{name}: {sum(charged.values())} charges for {sum(due.values())} verdicts"]


def _overdue() -> list[str]:
    late = Attempt.objects.filter(state=AttemptState.LEASED, lease_expires_at__lt=timezone.now() - OVERDUE).count()
    return [f"{late} leases are older than their limit"] if late else []
