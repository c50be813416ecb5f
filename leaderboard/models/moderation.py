"""What maintainers do and say, and the trail of it."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from simple_history.models import HistoricalRecords

from leaderboard.models.choices import Track, known
from leaderboard.models.evaluations import Verdict
from leaderboard.models.targets import Target
from problems.models import Problem, Suite


class CampaignState(models.TextChoices):
    DRAFTED = "drafted", "Drafted"
    SAMPLED = "sampled", "Sampled"
    STARTED = "started", "Started"
    PUBLISHED = "published", "Published"
    ABANDONED = "abandoned", "Abandoned"


class Campaign(models.Model):
    """A re-evaluation of many runs. Old verdicts stay; the new ones take their place when it is published."""

    name = models.CharField(max_length=120, unique=True)
    reason = models.TextField()
    state = models.CharField(max_length=20, choices=CampaignState, default=CampaignState.DRAFTED)
    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="campaigns")
    suite = models.ForeignKey(Suite, on_delete=models.PROTECT, related_name="campaigns")
    protocol_version = models.CharField(max_length=20)
    created_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    created_at = models.DateTimeField(default=timezone.now)
    published_at = models.DateTimeField(null=True, blank=True)

    history = HistoricalRecords()

    class Meta:
        ordering = ("-created_at",)
        constraints = (known("state", CampaignState, "campaign_state_known"),)

    def __str__(self) -> str:
        return self.name


class ReviewState(models.TextChoices):
    HELD = "held", "Held"
    RELEASED = "released", "Released"
    DISQUALIFIED = "disqualified", "Disqualified"
    APPEALED = "appealed", "Appealed"


class Review(models.Model):
    """Why a verdict does not count for now or for good; shown beside it, with reviewer and appeal."""

    verdict = models.ForeignKey(Verdict, on_delete=models.PROTECT, related_name="reviews")
    state = models.CharField(max_length=20, choices=ReviewState, default=ReviewState.HELD)
    reason = models.TextField()
    reviewer = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="reviews"
    )
    appeal = models.TextField(blank=True)
    created_at = models.DateTimeField(default=timezone.now)
    decided_at = models.DateTimeField(null=True, blank=True)

    history = HistoricalRecords()

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("verdict",),
                condition=Q(state__in=(ReviewState.HELD, ReviewState.APPEALED)),
                name="review_one_open",
            ),
            known("state", ReviewState, "review_state_known"),
        )

    def __str__(self) -> str:
        return f"{self.verdict} {self.state}"


class PublishedResultKind(models.TextChoices):
    MODEL = "model", "Figures of a model"
    HEADLINE = "headline", "Statement about the benchmark"
    KERNEL = "kernel", "Speedup of one kernel"


class PublishedResult(models.Model):
    """A figure that others reported, with its source. Never ranked together with evaluated runs."""

    key = models.SlugField(max_length=120, unique=True)
    kind = models.CharField(max_length=20, choices=PublishedResultKind)
    statement = models.CharField(max_length=300, blank=True)
    model = models.CharField(max_length=120, blank=True)
    organisation = models.CharField(max_length=120, blank=True)
    track = models.CharField(max_length=20, choices=Track, blank=True)
    steps = models.PositiveIntegerField(null=True, blank=True)
    harness = models.CharField(max_length=120, blank=True)
    problem = models.ForeignKey(Problem, on_delete=models.SET_NULL, null=True, blank=True, related_name="published")
    problem_slug = models.CharField(max_length=100, blank=True)
    problems = models.PositiveIntegerField(null=True, blank=True, help_text="N of the figures.")
    correct = models.PositiveIntegerField(null=True, blank=True)
    faster = models.PositiveIntegerField(null=True, blank=True, help_text="Faster than the baseline.")
    fast_1 = models.FloatField(null=True, blank=True)
    speedup = models.FloatField(null=True, blank=True)
    value = models.FloatField(null=True, blank=True)
    relation = models.CharField(max_length=20, blank=True, help_text="Such as 'more than' or 'up to'.")
    setup = models.JSONField(default=dict, blank=True, help_text="Hardware, baseline, iterations, tolerance.")
    source = models.CharField(max_length=300)
    order = models.PositiveSmallIntegerField(default=0)

    history = HistoricalRecords()

    class Meta:
        ordering = ("kind", "order")
        constraints = (known("kind", PublishedResultKind, "published_result_kind_known"),)

    def __str__(self) -> str:
        return self.key


class AnnouncementQuerySet(models.QuerySet["Announcement"]):
    def published(self, *, at: datetime | None = None) -> AnnouncementQuerySet:
        """Announcements whose date has come at the moment ``at``, newest first."""
        return self.filter(published_at__lte=at or timezone.now()).order_by("-published_at")


class Announcement(models.Model):
    """A piece of news. ``published_at`` in the future: not yet shown; empty: a draft."""

    slug = models.SlugField(max_length=100, unique=True)
    title = models.CharField(max_length=200)
    body = models.TextField(help_text="Markdown.")
    published_at = models.DateTimeField(null=True, blank=True, db_index=True)
    created_at = models.DateTimeField(auto_now_add=True)

    objects = AnnouncementQuerySet.as_manager()
    history = HistoricalRecords()

    class Meta:
        ordering = ("-published_at",)

    def __str__(self) -> str:
        return self.title


class AuditEvent(models.Model):
    """Who did what to which object, and why. Written in the transaction of the deed; never changed."""

    action = models.CharField(max_length=60, db_index=True)
    actor = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.SET_NULL, null=True, blank=True, related_name="audit_events"
    )
    actor_name = models.CharField(max_length=200, help_text="User name, 'worker NAME' or 'system', as it was then.")
    subject_type = models.CharField(max_length=40)
    subject_id = models.CharField(max_length=64)
    reason = models.CharField(max_length=500, blank=True)
    detail = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-created_at", "-pk")
        indexes = (
            models.Index(fields=("subject_type", "subject_id", "-created_at"), name="audit_by_subject"),
            models.Index(fields=("-created_at",), name="audit_by_time"),
        )

    def __str__(self) -> str:
        return f"{self.created_at:%Y-%m-%d %H:%M} {self.actor_name} {self.action} {self.subject_type} {self.subject_id}"
