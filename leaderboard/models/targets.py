"""Hardware: what can be evaluated on, and who evaluates."""

from __future__ import annotations

import re
import secrets
from datetime import datetime, timedelta

from django.core.validators import RegexValidator
from django.db import models
from django.db.models import Q
from django.utils import timezone
from simple_history.models import HistoricalRecords

from leaderboard.models.choices import PRECISIONS, known


class TargetQuerySet(models.QuerySet["Target"]):
    def open(self) -> TargetQuerySet:
        """Targets that accept runs."""
        return self.filter(is_open=True)


class Target(models.Model):
    """A kind of machine: GPU, how many, peaks, queue. ``is_ranked`` False: correctness counts, speed is not ranked."""

    name = models.CharField(max_length=40, unique=True, validators=[RegexValidator(re.compile(r"^[a-z0-9-]+\Z"))])
    title = models.CharField(max_length=120)
    device = models.CharField(max_length=10, choices=[("cpu", "CPU"), ("cuda", "CUDA")])
    gpu = models.CharField(max_length=60, blank=True)
    world_size = models.PositiveSmallIntegerField()
    precision = models.CharField(max_length=10, choices=PRECISIONS, help_text="Precision offered first on submit.")
    precisions = models.JSONField(default=list, help_text="Precisions that can be evaluated here.")
    queue = models.CharField(max_length=60, unique=True)
    is_ranked = models.BooleanField(default=False)
    is_open = models.BooleanField(default=True, help_text="Accepts new runs.")
    label = models.CharField(max_length=300, blank=True, help_text="What the board of this target must say of itself.")
    peaks = models.JSONField(default=dict, blank=True, help_text="Peak rates, in units that the names give.")
    order = models.PositiveSmallIntegerField(default=100)
    quota_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Evaluation seconds that a team may use here in the rolling window; empty: PKB_QUOTA_SECONDS.",
    )

    objects = TargetQuerySet.as_manager()
    history = HistoricalRecords()

    class Meta:
        ordering = ("order", "name")
        constraints = (
            models.CheckConstraint(condition=Q(world_size__range=(1, 16)), name="target_world_size_range"),
            models.CheckConstraint(condition=Q(device__in=("cpu", "cuda")), name="target_device_known"),
        )

    def __str__(self) -> str:
        return self.name


class WorkerState(models.TextChoices):
    """Drained and quarantined are set by maintainers, failing by the site when the host's canary fails."""

    ACTIVE = "active", "Active"
    DRAINED = "drained", "Drained"
    QUARANTINED = "quarantined", "Quarantined"
    FAILING = "failing", "Quarantined: its canary fails"


class WorkerQuerySet(models.QuerySet["Worker"]):
    def online(self, *, within: timedelta = timedelta(minutes=2), at: datetime | None = None) -> WorkerQuerySet:
        """Workers that take work and gave a sign of life in the time ``within`` before ``at``."""
        return self.present(within=within, at=at).filter(state=WorkerState.ACTIVE, refusal="")

    def present(self, *, within: timedelta = timedelta(minutes=2), at: datetime | None = None) -> WorkerQuerySet:
        """Workers that gave a sign of life in the time ``within`` before ``at``, whether they take work or not."""
        return self.filter(last_seen_at__gte=(at or timezone.now()) - within)


def _new_key() -> str:
    return secrets.token_hex(32)


class Worker(models.Model):
    """A host that evaluates for one target. ``key`` signs its messages: whoever has it can report as this worker."""

    name = models.CharField(max_length=100, unique=True, validators=[RegexValidator(re.compile(r"^[\w.@-]+\Z"))])
    target = models.ForeignKey(Target, on_delete=models.PROTECT, related_name="workers")
    key = models.CharField(max_length=64, default=_new_key, editable=False)
    state = models.CharField(max_length=20, choices=WorkerState, default=WorkerState.ACTIVE)
    state_reason = models.CharField(max_length=500, blank=True, help_text="Why it is in this state.")
    refusal = models.CharField(
        max_length=1_000, blank=True, help_text="Why it takes no work although it is active: another suite, say."
    )
    host = models.CharField(max_length=200, blank=True, help_text="Name of its machine, as last reported.")
    versions = models.JSONField(default=dict, blank=True, help_text="Of driver, torch, code … as last reported.")
    capabilities = models.JSONField(
        default=dict, blank=True, help_text="Devices, topology, protocol and suite, as last reported."
    )
    registered_at = models.DateTimeField(auto_now_add=True)
    last_seen_at = models.DateTimeField(null=True, blank=True, db_index=True)

    objects = WorkerQuerySet.as_manager()

    class Meta:
        ordering = ("target", "name")
        constraints = (known("state", WorkerState, "worker_state_known"),)

    def __str__(self) -> str:
        return self.name

    @property
    def takes_work(self) -> bool:
        return self.state == WorkerState.ACTIVE and not self.refusal

    @property
    def why_not(self) -> str:
        """Why it takes no work, as a sentence; "" if it does."""
        return self.refusal if self.state == WorkerState.ACTIVE else self.state_reason
