"""What is ranked."""

from __future__ import annotations

from django.db import models
from simple_history.models import HistoricalRecords

from leaderboard.models.teams import Team


class RankedModel(models.Model):
    """A system that wrote kernels: a language model, or an agent around one. "Model" on pages."""

    slug = models.SlugField(max_length=80, unique=True)
    name = models.CharField(max_length=120)
    organisation = models.CharField(max_length=120, blank=True)
    team = models.ForeignKey(Team, on_delete=models.PROTECT, related_name="ranked_models")
    released_on = models.DateField(null=True, blank=True)
    open_weights = models.BooleanField(default=False)
    licence = models.CharField(max_length=100, blank=True)
    link = models.URLField(blank=True)
    alias = models.CharField(
        max_length=120, blank=True, help_text="Shown in place of name and organisation until the model is released."
    )
    is_baseline = models.BooleanField(default=False, help_text="The pinned row of the reference itself; never ranked.")
    single_shot_runs = models.PositiveSmallIntegerField(
        null=True,
        blank=True,
        help_text="Single-shot runs that may be sent in a calendar month; empty: PKB_SINGLE_SHOT_RUNS.",
    )
    created_at = models.DateTimeField(auto_now_add=True)

    history = HistoricalRecords()

    class Meta:
        ordering = ("name",)
        constraints = (models.UniqueConstraint(fields=("team", "name"), name="ranked_model_once_per_team"),)

    def __str__(self) -> str:
        return self.name

    @property
    def public_name(self) -> str:
        """Name as the public sees it."""
        return self.alias or self.name

    @property
    def public_organisation(self) -> str:
        """Organisation as the public sees it: none while the model goes by an alias."""
        return "" if self.alias else self.organisation
