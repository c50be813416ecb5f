"""What teams send: an upload becomes a run with a submission for each file."""

from __future__ import annotations

import uuid
from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from leaderboard.models.choices import (
    BACKENDS,
    PRECISIONS,
    Provenance,
    Track,
    at_least_zero,
    known,
    public_id,
)
from leaderboard.models.ranking import RankedModel
from leaderboard.models.teams import Membership, Team
from problems.models import Problem


class SourceFile(models.Model):
    """The text of a file, stored once however often it is sent."""

    sha256 = models.CharField(max_length=64, primary_key=True)
    size = models.PositiveIntegerField(help_text="Bytes as sent.")
    text = models.TextField()
    created_at = models.DateTimeField(auto_now_add=True)

    def __str__(self) -> str:
        return self.sha256[:12]


class UploadState(models.TextChoices):
    PREVIEWED = "previewed", "Previewed"
    CONFIRMED = "confirmed", "Confirmed"


class Upload(models.Model):
    """One visit to the submit page. ``findings``: one entry a file, as ``leaderboard.intake`` wrote them."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="uploads")
    state = models.CharField(max_length=20, choices=UploadState, default=UploadState.PREVIEWED)
    findings = models.JSONField(default=list)
    guesses = models.JSONField(
        default=dict, blank=True, help_text="Read from folder names: backend, precision, model …"
    )
    sources = models.ManyToManyField(SourceFile, related_name="uploads")
    created_at = models.DateTimeField(auto_now_add=True)
    confirmed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("-created_at",)
        constraints = (known("state", UploadState, "upload_state_known"),)

    def __str__(self) -> str:
        return f"{self.id} {self.state}"


class RunState(models.TextChoices):
    ACTIVE = "active", "Active"
    WITHDRAWN = "withdrawn", "Withdrawn"
    DISQUALIFIED = "disqualified", "Disqualified"


class Visibility(models.TextChoices):
    PUBLIC = "public", "Public"
    EMBARGOED = "embargoed", "Public from a date"
    PRIVATE = "private", "Only the team"


class SourceVisibility(models.TextChoices):
    PUBLIC = "public", "With the result"
    PRIVATE = "private", "Only the team"


class RunQuerySet(models.QuerySet["Run"]):
    def visible_to(self, user: object, *, at: datetime | None = None) -> RunQuerySet:
        """Runs whose results ``user`` may see: public ones, those of an own team, and all for staff."""
        return self.filter(seen_by(user, at=at))

    def active(self) -> RunQuerySet:
        """Neither withdrawn nor disqualified."""
        return self.filter(state=RunState.ACTIVE)


def seen_by(user: object, *, run: str = "", at: datetime | None = None) -> Q:
    """Condition for rows whose run ``user`` may see; ``run`` is the path from the row to its run, such as "run__"."""
    if getattr(user, "is_staff", False):
        return Q()
    now = at or timezone.now()
    public = Q(**{f"{run}visibility": Visibility.PUBLIC}) | Q(
        **{f"{run}visibility": Visibility.EMBARGOED, f"{run}embargo_until__lte": now}
    )
    if not getattr(user, "is_authenticated", False):
        return public
    mine = Membership.objects.filter(user=user, team=OuterRef(f"{run}team"))  # type: ignore[misc]
    return public | Q(Exists(mine))


class Run(models.Model):
    """One model's answers to the suite under one protocol: track, backend and precision."""

    public_id = models.CharField(max_length=12, unique=True, default=public_id, editable=False)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="runs")
    model = models.ForeignKey(RankedModel, on_delete=models.PROTECT, related_name="runs")
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="runs")
    upload = models.OneToOneField(Upload, on_delete=models.PROTECT, null=True, blank=True, related_name="run")
    state = models.CharField(max_length=20, choices=RunState, default=RunState.ACTIVE)
    state_reason = models.CharField(max_length=500, blank=True)
    track = models.CharField(max_length=20, choices=Track)
    backend = models.CharField(max_length=20, choices=BACKENDS)
    precision = models.CharField(max_length=10, choices=PRECISIONS)
    provenance = models.CharField(max_length=20, choices=Provenance, default=Provenance.SELF_REPORTED)
    provenance_note = models.TextField(blank=True)
    cost_usd = models.DecimalField(max_digits=12, decimal_places=4, null=True, blank=True)
    cost_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    visibility = models.CharField(max_length=20, choices=Visibility, default=Visibility.PUBLIC)
    embargo_until = models.DateTimeField(null=True, blank=True)
    source_visibility = models.CharField(max_length=20, choices=SourceVisibility, default=SourceVisibility.PUBLIC)
    licence = models.CharField(max_length=100, help_text="Licence of the files, an SPDX identifier.")
    terms_accepted_at = models.DateTimeField()
    record_profile = models.BooleanField(default=False, help_text="Also record a profiler's trace of every rank.")
    created_at = models.DateTimeField(default=timezone.now)

    objects = RunQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            known("state", RunState, "run_state_known"),
            known("track", Track, "run_track_known"),
            known("backend", BACKENDS, "run_backend_known"),
            known("precision", PRECISIONS, "run_precision_known"),
            known("provenance", Provenance, "run_provenance_known"),
            known("visibility", Visibility, "run_visibility_known"),
            known("source_visibility", SourceVisibility, "run_source_visibility_known"),
            models.CheckConstraint(
                condition=~Q(visibility=Visibility.EMBARGOED) | Q(embargo_until__isnull=False),
                name="run_embargo_has_date",
            ),
            at_least_zero("cost_usd", "run_cost_not_negative"),
        )
        indexes = (
            models.Index(fields=("state", "visibility", "-created_at"), name="run_public"),
            models.Index(fields=("model", "-created_at"), name="run_by_model"),
            models.Index(fields=("team", "-created_at"), name="run_by_team"),
            models.Index(
                fields=("-embargo_until",), condition=Q(visibility=Visibility.EMBARGOED), name="run_by_end_of_embargo"
            ),
        )

    def __str__(self) -> str:
        return f"{self.public_id} {self.model}"


class Submission(models.Model):
    """A file for a problem. ``sample`` numbers samples of a multi-sample run, ``step`` those of an agent, from 0."""

    public_id = models.CharField(max_length=12, unique=True, default=public_id, editable=False)
    run = models.ForeignKey(Run, on_delete=models.PROTECT, related_name="submissions")
    problem = models.ForeignKey(Problem, on_delete=models.PROTECT, related_name="submissions")
    source = models.ForeignKey(SourceFile, on_delete=models.PROTECT, related_name="submissions")
    file_name = models.CharField(max_length=200)
    sample = models.PositiveIntegerField(default=0)
    step = models.PositiveIntegerField(default=0)
    cost_usd = models.DecimalField(
        max_digits=12, decimal_places=6, null=True, blank=True, help_text="Of this step of an agent, as its team says."
    )
    cost_tokens = models.PositiveBigIntegerField(null=True, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("run", "problem__number", "sample", "step")
        constraints = (
            models.UniqueConstraint(fields=("run", "problem", "sample", "step"), name="submission_once_per_place"),
            at_least_zero("cost_usd", "submission_cost_not_negative"),
        )
        indexes = (models.Index(fields=("problem", "-created_at"), name="submission_by_problem"),)

    def __str__(self) -> str:
        return f"{self.public_id} {self.file_name}"
