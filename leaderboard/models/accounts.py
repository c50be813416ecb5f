"""People and their keys."""

from __future__ import annotations

import hashlib
import secrets
from datetime import datetime

from django.contrib.auth.models import AbstractUser
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower
from django.utils import timezone


class User(AbstractUser):
    """A person. Two people never share an e-mail address, whatever its capitals."""

    email = models.EmailField("e-mail address")

    class Meta(AbstractUser.Meta):
        constraints = (
            models.UniqueConstraint(
                Lower("email"),
                condition=~Q(email=""),
                name="user_email_once",
                violation_error_message="There is already an account with this e-mail address.",
            ),
        )


class Scope(models.TextChoices):
    """What a token may do."""

    READ = "read", "Read runs and feedback"
    SUBMIT = "submit", "Submit and withdraw"


class ApiTokenQuerySet(models.QuerySet["ApiToken"]):
    def usable(self, *, at: datetime | None = None) -> ApiTokenQuerySet:
        """Neither revoked nor expired at the moment ``at``."""
        now = at or timezone.now()
        return self.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=now), revoked_at__isnull=True)


class ApiToken(models.Model):
    """A key for programs. Only its sha256 is kept; the text is shown once, when it is made."""

    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="api_tokens")
    team = models.ForeignKey("leaderboard.Team", on_delete=models.CASCADE, related_name="api_tokens")
    name = models.CharField(max_length=100)
    prefix = models.CharField(max_length=12, help_text="First characters, to tell tokens apart.")
    digest = models.CharField(max_length=64, unique=True)
    scopes = models.JSONField(default=list)
    created_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)

    objects = ApiTokenQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at",)

    def __str__(self) -> str:
        return f"{self.name} ({self.prefix}…)"

    @staticmethod
    def new_secret() -> str:
        return f"pkb_{secrets.token_urlsafe(32)}"

    @staticmethod
    def digest_of(secret: str) -> str:
        return hashlib.sha256(secret.encode()).hexdigest()
