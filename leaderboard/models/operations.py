"""What the machinery notes about itself: canaries of the hosts, and the figures that it counts as it goes."""

from __future__ import annotations

import uuid

from django.db import models
from django.utils import timezone

from leaderboard.models.choices import CODES
from leaderboard.models.targets import Worker


class CanaryQuerySet(models.QuerySet["Canary"]):
    def pending(self) -> CanaryQuerySet:
        """Sent, and neither answered nor given up."""
        return self.filter(finished_at=None)


class Canary(models.Model):
    """A known file that one host judged, to see whether it still judges right. No team's scores or quotas know of it.

    ``passed`` empty: not answered yet, or never; ``reason`` says so in a sentence. Times: seconds per call.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    worker = models.ForeignKey(Worker, on_delete=models.CASCADE, related_name="canaries")
    problem_number = models.PositiveIntegerField()
    sent_at = models.DateTimeField(default=timezone.now)
    finished_at = models.DateTimeField(null=True, blank=True)
    passed = models.BooleanField(null=True, blank=True)
    reason = models.CharField(max_length=500, blank=True, help_text="Why it was sent, then what came of it.")
    code = models.CharField(max_length=30, choices=CODES, blank=True)
    message = models.CharField(max_length=1_000, blank=True)
    speedup = models.FloatField(null=True, blank=True, help_text="Reference time divided by the canary's.")
    speedup_low = models.FloatField(null=True, blank=True)
    speedup_high = models.FloatField(null=True, blank=True)
    reference_seconds = models.FloatField(null=True, blank=True)
    seconds = models.FloatField(null=True, blank=True, help_text="Wall clock of the evaluation.")

    objects = CanaryQuerySet.as_manager()

    class Meta:
        ordering = ("-sent_at",)
        verbose_name_plural = "canaries"
        constraints = (
            models.UniqueConstraint(
                fields=("worker",), condition=models.Q(finished_at=None), name="canary_one_pending"
            ),
        )
        indexes = (models.Index(fields=("worker", "-sent_at"), name="canary_by_worker"),)

    def __str__(self) -> str:
        return f"canary of {self.worker} at {self.sent_at:%Y-%m-%d %H:%M}"


class Tally(models.Model):
    """A counter that only grows: so often, and so many seconds in all. Metrics read it instead of counting verdicts."""

    name = models.CharField(max_length=40)
    target = models.CharField(max_length=40, blank=True)
    label = models.CharField(max_length=40, blank=True, help_text="Such as a code or a phase.")
    count = models.BigIntegerField(default=0)
    seconds = models.FloatField(default=0)

    class Meta:
        ordering = ("name", "target", "label")
        verbose_name_plural = "tallies"
        constraints = (models.UniqueConstraint(fields=("name", "target", "label"), name="tally_once"),)

    def __str__(self) -> str:
        return f"{self.name} {self.target} {self.label}: {self.count}"
