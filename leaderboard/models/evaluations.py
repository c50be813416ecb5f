"""The way from a run to verdicts. States change only in ``leaderboard.lifecycle``."""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q
from django.utils import timezone

from leaderboard.models.choices import CODES, DECISIONS, at_least_zero, known, public_id
from leaderboard.models.runs import Run, Submission
from leaderboard.models.targets import Target, Worker
from problems.models import Problem, Suite


class EvaluationState(models.TextChoices):
    QUEUED = "queued", "Queued"
    RUNNING = "running", "Running"
    COMPLETED = "completed", "Completed"
    CANCELLED = "cancelled", "Cancelled"


class Evaluation(models.Model):
    """A run judged on a target by a version of suite and protocol. Complete when every submission has its verdict."""

    public_id = models.CharField(max_length=12, unique=True, default=public_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="evaluations")
    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="evaluations")
    suite = models.ForeignKey(Suite, on_delete=models.PROTECT, related_name="evaluations")
    protocol_version = models.CharField(max_length=20)
    campaign = models.ForeignKey(
        "leaderboard.Campaign", on_delete=models.PROTECT, null=True, blank=True, related_name="evaluations"
    )
    state = models.CharField(max_length=20, choices=EvaluationState, default=EvaluationState.QUEUED)
    created_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("run", "target", "suite", "protocol_version"),
                condition=Q(campaign__isnull=True),
                name="evaluation_once",
            ),
            models.UniqueConstraint(fields=("run", "target", "campaign"), name="evaluation_once_per_campaign"),
            known("state", EvaluationState, "evaluation_state_known"),
        )
        indexes = (
            models.Index(fields=("target", "state", "-created_at"), name="evaluation_by_target"),
            models.Index(fields=("target", "suite", "-finished_at"), name="evaluation_by_end"),
        )

    def __str__(self) -> str:
        return f"{self.public_id} {self.run} on {self.target}"


class AttemptState(models.TextChoices):
    QUEUED = "queued", "Queued"
    LEASED = "leased", "Running"
    RECORDED = "recorded", "Recorded"
    LOST = "lost", "Lost"
    CANCELLED = "cancelled", "Cancelled"


ACTIVE_STATES = (AttemptState.QUEUED, AttemptState.LEASED)


class AttemptQuerySet(models.QuerySet["Attempt"]):
    def active(self) -> AttemptQuerySet:
        """Attempts from which a report may still come."""
        return self.filter(state__in=ACTIVE_STATES)


class Attempt(models.Model):
    """One delivery of a submission to a worker. Leased: a worker holds it until ``lease_expires_at``."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    evaluation = models.ForeignKey(Evaluation, on_delete=models.PROTECT, related_name="attempts")
    submission = models.ForeignKey(Submission, on_delete=models.PROTECT, related_name="attempts")
    target = models.ForeignKey(
        Target,
        on_delete=models.PROTECT,
        related_name="attempts",
        help_text="Of the evaluation; kept here for the queue.",
    )
    turn = models.PositiveIntegerField(default=0, help_text="Place in the queue: lower is sent sooner.")
    is_practice = models.BooleanField(default=False, help_text="Of a small run that did not wait for its team's turn.")
    in_campaign = models.BooleanField(default=False, help_text="Part of a re-evaluation: waits for everybody else.")
    number = models.PositiveSmallIntegerField(default=1, help_text="Counts the deliveries, from 1.")
    state = models.CharField(max_length=20, choices=AttemptState, default=AttemptState.QUEUED)
    reason = models.CharField(max_length=500, blank=True, help_text="Why it was lost or cancelled.")
    worker = models.ForeignKey(Worker, on_delete=models.PROTECT, null=True, blank=True, related_name="attempts")
    host = models.CharField(max_length=200, blank=True)
    lease_expires_at = models.DateTimeField(null=True, blank=True)
    phase = models.CharField(max_length=20, blank=True)
    phase_done = models.PositiveIntegerField(default=0)
    phase_total = models.PositiveIntegerField(default=0)
    note = models.CharField(max_length=1_000, blank=True)
    sequence = models.IntegerField(default=-1, help_text="Of the last progress message; older ones are dropped.")
    created_at = models.DateTimeField(default=timezone.now)
    sent_at = models.DateTimeField(null=True, blank=True, help_text="When the last wake-up went to the queue.")
    wait_until = models.DateTimeField(
        null=True, blank=True, help_text="Not sent before: a host could not serve it. The note says why."
    )
    leased_at = models.DateTimeField(null=True, blank=True)
    finished_at = models.DateTimeField(null=True, blank=True)

    objects = AttemptQuerySet.as_manager()

    class Meta:
        ordering = ("created_at", "submission", "number")
        constraints = (
            models.UniqueConstraint(fields=("evaluation", "submission", "number"), name="attempt_number_once"),
            models.UniqueConstraint(
                fields=("evaluation", "submission"), condition=Q(state__in=ACTIVE_STATES), name="attempt_one_active"
            ),
            models.CheckConstraint(condition=Q(number__gte=1), name="attempt_number_positive"),
            models.CheckConstraint(
                condition=~Q(state=AttemptState.LEASED) | Q(lease_expires_at__isnull=False, worker__isnull=False),
                name="attempt_lease_has_worker_and_end",
            ),
            known("state", AttemptState, "attempt_state_known"),
        )
        indexes = (
            models.Index(fields=("state", "lease_expires_at"), name="attempt_expiry"),
            models.Index(fields=("state", "sent_at"), name="attempt_resend"),
            models.Index(
                fields=("target", "in_campaign", "turn", "created_at"),
                condition=Q(state=AttemptState.QUEUED, sent_at__isnull=True),
                name="attempt_next",
            ),
            models.Index(fields=("target", "state"), name="attempt_by_target"),
            models.Index(fields=("finished_at",), name="attempt_by_end"),
        )

    def __str__(self) -> str:
        return f"{self.id} #{self.number} {self.state}"


class Standing(models.TextChoices):
    """Whether a correct verdict counts. What does not count stays visible, with its reason."""

    COUNTED = "counted", "Counts"
    HELD = "held", "Held for review"
    DISQUALIFIED = "disqualified", "Disqualified"
    DUPLICATE = "duplicate", "Duplicate of the baseline"


class Verdict(models.Model):
    """The final outcome of a submission in an evaluation. Times: seconds per call. The whole report is an artifact."""

    evaluation = models.ForeignKey(Evaluation, on_delete=models.PROTECT, related_name="verdicts")
    submission = models.ForeignKey(Submission, on_delete=models.PROTECT, related_name="verdicts")
    attempt = models.OneToOneField(Attempt, on_delete=models.PROTECT, related_name="verdict")
    problem = models.ForeignKey(
        Problem,
        on_delete=models.PROTECT,
        related_name="verdicts",
        help_text="Of the submission; kept here for the best on a problem.",
    )
    target = models.ForeignKey(
        Target,
        on_delete=models.PROTECT,
        related_name="verdicts",
        help_text="Of the evaluation; kept here for the best on a problem.",
    )
    code = models.CharField(max_length=30, choices=CODES)
    decision = models.CharField(max_length=10, choices=DECISIONS)
    standing = models.CharField(max_length=20, choices=Standing, default=Standing.COUNTED)
    message = models.CharField(max_length=1_000)
    failure_id = models.CharField(max_length=16, blank=True, db_index=True)
    failed_phase = models.CharField(max_length=20, blank=True, help_text="The phase that failed; empty if none did.")
    speedup = models.FloatField(null=True, blank=True, help_text="Reference time divided by candidate time.")
    speedup_low = models.FloatField(null=True, blank=True)
    speedup_high = models.FloatField(null=True, blank=True)
    reference_seconds = models.FloatField(null=True, blank=True)
    candidate_seconds = models.FloatField(null=True, blank=True)
    bound_seconds = models.FloatField(null=True, blank=True, help_text="Overlap bound of the roofline.")
    serial_bound_seconds = models.FloatField(null=True, blank=True, help_text="Bound without any overlap.")
    utilisation = models.FloatField(null=True, blank=True, help_text="Bound divided by candidate time.")
    compatible_correct = models.BooleanField(null=True, blank=True)
    compatible_speedup = models.FloatField(null=True, blank=True)
    mechanisms = models.JSONField(default=list, blank=True)
    census = models.JSONField(
        null=True, blank=True, help_text="Shares of time by origin, as evaluator.contract.Census."
    )
    seconds = models.FloatField(help_text="Wall clock of the evaluation.")
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("evaluation", "submission")
        constraints = (
            models.UniqueConstraint(fields=("evaluation", "submission"), name="verdict_once"),
            known("code", CODES, "verdict_code_known"),
            known("decision", DECISIONS, "verdict_decision_known"),
            known("standing", Standing, "verdict_standing_known"),
            models.CheckConstraint(
                condition=Q(code="correct") | Q(decision="none"), name="verdict_decision_needs_correct"
            ),
            at_least_zero("speedup", "verdict_speedup_not_negative"),
            at_least_zero("utilisation", "verdict_utilisation_not_negative"),
            at_least_zero("seconds", "verdict_seconds_not_negative"),
        )
        indexes = (
            models.Index(fields=("evaluation", "code", "decision"), name="verdict_by_evaluation"),
            models.Index(
                fields=("problem", "target", "-speedup"),
                condition=Q(code="correct", standing=Standing.COUNTED),
                name="verdict_best",
            ),
            models.Index(
                fields=("problem", "target", "-created_at"),
                condition=Q(code="correct", standing=Standing.COUNTED),
                name="verdict_newest",
            ),
        )

    def __str__(self) -> str:
        return f"{self.submission} {self.code}"


class ArtifactKind(models.TextChoices):
    REPORT = "report", "Report"
    TRACE = "trace", "Trace of a rank"


class Artifact(models.Model):
    """Something that an attempt left. The report, as it was signed, is in ``content``; a trace is a ``file``.

    A trace without a file is one that could not be stored yet; ``note`` says why.
    """

    attempt = models.ForeignKey(Attempt, on_delete=models.PROTECT, related_name="artifacts")
    kind = models.CharField(max_length=20, choices=ArtifactKind)
    name = models.CharField(max_length=100, blank=True)
    sha256 = models.CharField(max_length=64)
    size = models.PositiveIntegerField()
    content = models.TextField(blank=True)
    content_type = models.CharField(max_length=100, default="application/json")
    file = models.CharField(max_length=200, blank=True, help_text="Path below the data folder.")
    note = models.CharField(max_length=300, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("attempt", "kind", "name")
        constraints = (
            models.UniqueConstraint(fields=("attempt", "kind", "name"), name="artifact_once"),
            known("kind", ArtifactKind, "artifact_kind_known"),
        )

    def __str__(self) -> str:
        return f"{self.kind} of {self.attempt}"
