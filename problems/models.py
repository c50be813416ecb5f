"""The catalogue: which suite versions exist, which problems, and what exactly each version of a problem asks.

Loaded from the suite's manifest (``manage.py load_suite``), because a web host has no torch to import the suite with.
"""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from simple_history.models import HistoricalRecords


class Type(models.TextChoices):
    """The kind of parallelism that a problem exercises."""

    COLLECTIVE = "collective", "Collective"
    TENSOR = "tensor", "Tensor"
    SEQUENCE = "sequence", "Sequence"
    CONTEXT = "context", "Context"
    EXPERT = "expert", "Expert"
    DATA = "data", "Data"
    SHARDED_DATA = "sharded_data", "Sharded data"
    PIPELINE = "pipeline", "Pipeline"
    SPATIAL = "spatial", "Spatial"
    EMBEDDING = "embedding", "Embedding"
    GRAPH = "graph", "Graph"


class ProblemQuerySet(models.QuerySet["Problem"]):
    def in_suite(self, suite: Suite) -> ProblemQuerySet:
        """Problems of which ``suite`` holds a version, in the order of their numbers."""
        return self.filter(versions__suites=suite).order_by("number")


class Problem(models.Model):
    """A workload, whatever its version. Number and slug never change; ``aliases`` are names of older public sets."""

    number = models.PositiveIntegerField(unique=True, validators=[MinValueValidator(1)])
    slug = models.SlugField(max_length=100, unique=True)
    title = models.CharField(max_length=200)
    type = models.CharField(max_length=20, choices=Type, db_index=True)
    also = models.JSONField(default=list, blank=True, help_text="Further types, in a list.")
    aliases = models.JSONField(default=list, blank=True, help_text="Other slugs under which files may come.")
    domain = models.CharField(max_length=100, blank=True)
    stage = models.CharField(max_length=100, blank=True)
    origin = models.CharField(max_length=300, blank=True)
    difficulty = models.PositiveSmallIntegerField(validators=[MinValueValidator(1), MaxValueValidator(5)])

    objects = ProblemQuerySet.as_manager()
    history = HistoricalRecords()

    class Meta:
        ordering = ("number",)
        constraints = (
            models.CheckConstraint(condition=Q(number__gte=1), name="problem_number_positive"),
            models.CheckConstraint(condition=Q(type__in=Type.values), name="problem_type_known"),
            models.CheckConstraint(condition=Q(difficulty__range=(1, 5)), name="problem_difficulty_range"),
        )

    def __str__(self) -> str:
        return f"{self.number} {self.slug}"

    @property
    def types(self) -> list[str]:
        """Primary type first, then the further ones."""
        return [self.type, *self.also]


class ProblemVersion(models.Model):
    """What is asked and how it is judged, frozen: a changed reference, input builder or tolerance is a new version."""

    problem = models.ForeignKey(Problem, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField(default=1)
    digest = models.CharField(max_length=64, unique=True, help_text="sha256 of everything that decides a verdict.")
    statement = models.TextField(help_text="Markdown.")
    signature = models.TextField(blank=True)
    reference = models.TextField(blank=True, help_text="Source of the reference, as people and models read it.")
    communication = models.TextField(blank=True, help_text="Collectives of the reference, one a line.")
    details = models.JSONField(
        default=dict, blank=True, help_text="Shapes, draws, tolerances, hazards and cost model from the manifest."
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("problem__number", "-number")
        constraints = (
            models.UniqueConstraint(fields=("problem", "number"), name="problem_version_once"),
            models.CheckConstraint(condition=Q(number__gte=1), name="problem_version_positive"),
        )

    def __str__(self) -> str:
        return f"{self.problem} v{self.number}"


class SuiteQuerySet(models.QuerySet["Suite"]):
    def current(self) -> Suite | None:
        """The version that new runs are judged by, or None before the first ``load_suite``."""
        return self.filter(is_current=True).first()


class Suite(models.Model):
    """A version of the benchmark: a fixed set of problem versions. N of every score is its number of problems."""

    version = models.CharField(max_length=40, unique=True)
    title = models.CharField(max_length=200, default="ParallelKernelBench")
    is_current = models.BooleanField(default=False)
    released_on = models.DateField(null=True, blank=True)
    problem_versions = models.ManyToManyField(ProblemVersion, related_name="suites")
    created_at = models.DateTimeField(auto_now_add=True)

    objects = SuiteQuerySet.as_manager()

    class Meta:
        ordering = ("-created_at",)
        constraints = (
            models.UniqueConstraint(fields=("is_current",), condition=Q(is_current=True), name="suite_one_current"),
        )

    def __str__(self) -> str:
        return f"{self.title} {self.version}"
