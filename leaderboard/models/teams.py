"""Teams, who belongs to them, and what evaluations have cost them."""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.db import models
from django.db.models import Q
from django.utils import timezone
from simple_history.models import HistoricalRecords

from leaderboard.models.choices import known


class TeamQuerySet(models.QuerySet["Team"]):
    def of(self, user: object) -> TeamQuerySet:
        """Teams that ``user`` belongs to; none for a visitor."""
        if not getattr(user, "is_authenticated", False):
            return self.none()
        return self.filter(memberships__user=user)


class Team(models.Model):
    """Who submits."""

    slug = models.SlugField(max_length=60, unique=True)
    name = models.CharField(max_length=100, unique=True)
    link = models.URLField(blank=True)
    members = models.ManyToManyField(settings.AUTH_USER_MODEL, through="Membership", related_name="teams")
    created_at = models.DateTimeField(auto_now_add=True)
    quota_seconds = models.PositiveIntegerField(
        null=True,
        blank=True,
        help_text="Evaluation seconds that this team may use on each target in the rolling window; empty: as others.",
    )

    objects = TeamQuerySet.as_manager()
    history = HistoricalRecords()

    class Meta:
        ordering = ("name",)

    def __str__(self) -> str:
        return self.name


class Role(models.TextChoices):
    OWNER = "owner", "Owner"
    MEMBER = "member", "Member"


class Membership(models.Model):
    """Owners change the team and invite; members submit and see everything of the team."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="memberships")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("created_at",)
        constraints = (
            models.UniqueConstraint(fields=("team", "user"), name="membership_once"),
            known("role", Role, "membership_role_known"),
        )

    def __str__(self) -> str:
        return f"{self.user} in {self.team}"


class InvitationQuerySet(models.QuerySet["Invitation"]):
    def open(self, *, at: datetime | None = None) -> InvitationQuerySet:
        """Neither accepted nor expired at the moment ``at``."""
        return self.filter(accepted_at__isnull=True, expires_at__gt=at or timezone.now())


class Invitation(models.Model):
    """An e-mailed link that makes its holder a member. Only the sha256 of the link's secret is kept."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="invitations")
    email = models.EmailField()
    role = models.CharField(max_length=10, choices=Role, default=Role.MEMBER)
    digest = models.CharField(max_length=64, unique=True)
    invited_by = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    accepted_at = models.DateTimeField(null=True, blank=True)

    objects = InvitationQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(
                fields=("team", "email"), condition=Q(accepted_at__isnull=True), name="invitation_one_open"
            ),
            known("role", Role, "invitation_role_known"),
        )

    def __str__(self) -> str:
        return f"{self.email} to {self.team}"


class QuotaEntry(models.Model):
    """Evaluation seconds charged to a team on a target (positive) or granted to it (negative); the sum is the use."""

    team = models.ForeignKey(Team, on_delete=models.CASCADE, related_name="quota_entries")
    target = models.ForeignKey("leaderboard.Target", on_delete=models.PROTECT, related_name="+")
    attempt = models.OneToOneField(
        "leaderboard.Attempt", on_delete=models.PROTECT, null=True, blank=True, related_name="quota_entry"
    )
    seconds = models.FloatField()
    reason = models.CharField(max_length=200)
    created_at = models.DateTimeField(default=timezone.now)

    class Meta:
        ordering = ("-created_at",)
        verbose_name_plural = "quota entries"
        indexes = (
            models.Index(fields=("team", "target", "created_at"), name="quota_by_team"),
            models.Index(fields=("target", "-created_at"), name="quota_recent_by_target"),
        )

    def __str__(self) -> str:
        return f"{self.team} {self.target} {self.seconds:+.0f} s"
