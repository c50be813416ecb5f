"""Scores as they are shown, recomputed with every verdict by ``leaderboard.scores``. Pages read these and no more."""

from __future__ import annotations

from datetime import datetime

from django.db import models
from django.db.models import F, Q

from leaderboard.models.choices import at_least_zero
from leaderboard.models.evaluations import Evaluation, EvaluationState
from leaderboard.models.runs import RunState, seen_by
from leaderboard.scoring import ProblemOutcome, read_vector
from problems.models import Type


class EvaluationScoreQuerySet(models.QuerySet["EvaluationScore"]):
    def visible_to(self, user: object, *, at: datetime | None = None) -> EvaluationScoreQuerySet:
        """Scores of runs whose results ``user`` may see."""
        return self.filter(seen_by(user, run="evaluation__run__", at=at))

    def ranked(self) -> EvaluationScoreQuerySet:
        """Scores that may have a rank: complete, every file judged, run neither withdrawn nor disqualified."""
        return self.filter(
            evaluation__state=EvaluationState.COMPLETED,
            evaluation__run__state=RunState.ACTIVE,
            evaluation__run__model__is_baseline=False,
            unjudged=0,
        )

    def baselines(self) -> EvaluationScoreQuerySet:
        """Rows of the reference itself, pinned on the board."""
        return self.filter(evaluation__state=EvaluationState.COMPLETED, evaluation__run__model__is_baseline=True)

    def in_default_order(self) -> EvaluationScoreQuerySet:
        """Correctness rate, then fast_1, then speedup; equal rows: the earlier run first. No row is dropped."""
        return self.order_by("-correctness_rate", "-fast_1", "-speedup", "evaluation__run__created_at", "pk")

    def with_rows(self) -> EvaluationScoreQuerySet:
        """Everything that a row of the board shows, in two queries whatever the number of rows."""
        return self.select_related(
            "evaluation__run__model", "evaluation__run__team", "evaluation__target", "evaluation__suite"
        ).prefetch_related("types")


class Figures(models.Model):
    """What is computed alike for an evaluation and for each type in it. N is ``problems``; rates are of N."""

    problems = models.PositiveIntegerField(help_text="N: problems of the suite version, answered or not.")
    correct = models.PositiveIntegerField()
    faster = models.PositiveIntegerField(help_text="Correct and faster than the baseline by the interval rule.")
    correctness_rate = models.FloatField()
    fast_1 = models.FloatField()
    speedup = models.FloatField(help_text="Geomean over N of the speedup where faster, else 1.0.")
    speedup_correct_only = models.FloatField(null=True, help_text="Geomean over correct only.")
    utilisation = models.FloatField(null=True, help_text="Geomean of bound / time over correct.")

    class Meta:
        abstract = True


class EvaluationScore(Figures):
    """The row of an evaluation on the board. Intervals are at 95 %."""

    evaluation = models.OneToOneField(Evaluation, on_delete=models.CASCADE, related_name="score")
    submissions = models.PositiveIntegerField(help_text="Files in the run.")
    judged = models.PositiveIntegerField(help_text="Files with a verdict that says something about the file.")
    unjudged = models.PositiveIntegerField(help_text="Files whose verdict is a failure of ours.")
    correctness_low = models.FloatField()
    correctness_high = models.FloatField()
    speedup_low = models.FloatField()
    speedup_high = models.FloatField()
    fast_p = models.JSONField(default=list, help_text="[[p, share of N that is faster than p], …]")
    pass_at_k = models.JSONField(default=dict, help_text='{"1": …, "5": …} for multi-sample runs.')
    fast_1_at_k = models.JSONField(default=dict)
    compatible_correct = models.PositiveIntegerField(help_text="Correct by the public benchmark's rule.")
    compatible_faster = models.PositiveIntegerField(help_text="Correct and ratio above 1 by that rule.")
    compatible_speedup = models.FloatField(null=True, help_text="Geomean over those correct by that rule.")
    outcomes = models.JSONField(
        default=dict, help_text="{problem number: the parts of a scoring.ProblemOutcome in their order}"
    )
    solved_bits = models.TextField(
        default="0", help_text="Problems that count as correct, in hexadecimal: bit k is problem k."
    )
    gains = models.JSONField(default=dict, help_text="{problem number: speedup} where faster.")
    failures = models.JSONField(default=dict, help_text="{code: number of files}")
    profile = models.JSONField(default=dict, help_text="Mechanisms, failures and steps, as leaderboard.profiles says.")
    scoring_version = models.CharField(max_length=20)
    updated_at = models.DateTimeField(auto_now=True)

    objects = EvaluationScoreQuerySet.as_manager()

    class Meta:
        constraints = (
            models.CheckConstraint(condition=Q(correct__lte=F("problems")), name="score_correct_at_most_n"),
            models.CheckConstraint(condition=Q(faster__lte=F("correct")), name="score_faster_at_most_correct"),
            at_least_zero("speedup", "score_speedup_not_negative"),
        )
        indexes = (models.Index(fields=("-correctness_rate", "-fast_1", "-speedup"), name="score_default_order"),)

    def __str__(self) -> str:
        return f"{self.evaluation}: {self.correct}/{self.problems}"

    @property
    def solved(self) -> int:
        """The problems that count as correct, as bits, for paired tests."""
        return int(self.solved_bits, 16)

    @property
    def vector(self) -> dict[int, ProblemOutcome]:
        """The outcome of each answered problem, by its number."""
        return read_vector(self.outcomes)


class TypeScore(Figures):
    """Figures of one type of parallelism. ``view`` "primary": each problem once; "also": further types count too."""

    class View(models.TextChoices):
        PRIMARY = "primary", "Primary type"
        ALSO = "also", "Every type"

    score = models.ForeignKey(EvaluationScore, on_delete=models.CASCADE, related_name="types")
    type = models.CharField(max_length=20, choices=Type)
    view = models.CharField(max_length=10, choices=View)

    class Meta:
        ordering = ("score", "view", "type")
        constraints = (models.UniqueConstraint(fields=("score", "type", "view"), name="type_score_once"),)

    def __str__(self) -> str:
        return f"{self.score} {self.type}"


class ScoreVersion(models.Model):
    """Says whether what pages show has changed. ``token`` is random: it never repeats, not even after a restore.

    Written in the transaction of the change, by ``leaderboard.versions`` alone.
    """

    class Name(models.TextChoices):
        BOARD = "board", "Rows of the leaderboards"
        VERDICTS = "verdicts", "All verdicts"

    name = models.CharField(max_length=20, choices=Name, unique=True)
    token = models.CharField(max_length=32)
    changed_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"{self.name} {self.token}"
