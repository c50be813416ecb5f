"""The ranking: which rows a selection shows, their places, and the order of the column that the reader chose.

Reads score rows and nothing below them; the number of queries does not depend on the number of rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from leaderboard.charts import TypeShare
from leaderboard.models import EvaluationScore, PublishedResult, PublishedResultKind, Target, TypeScore
from leaderboard.pages import types
from leaderboard.scoring import Contender, Place, rank, to_bits, wilson
from problems.models import Problem


@dataclass(frozen=True)
class Shown:
    """The figures of a row: of the whole suite, or of one type where the reader picked one."""

    problems: int
    correct: int
    rate: float
    low: float
    high: float
    faster: int
    fast_1: float
    speedup: float
    speedup_low: float | None
    speedup_high: float | None

    @classmethod
    def whole(cls, score: EvaluationScore) -> Shown:
        """Over all problems of the suite."""
        return cls(
            problems=score.problems,
            correct=score.correct,
            rate=score.correctness_rate,
            low=score.correctness_low,
            high=score.correctness_high,
            faster=score.faster,
            fast_1=score.fast_1,
            speedup=score.speedup,
            speedup_low=score.speedup_low,
            speedup_high=score.speedup_high,
        )


@dataclass(frozen=True)
class Row:
    """One evaluation on the board. ``place`` is None for the baseline, which is pinned and never ranked."""

    score: EvaluationScore
    shown: Shown
    shares: list[TypeShare]
    place: Place | None = None

    @property
    def run(self) -> Any:
        return self.score.evaluation.run


# Keys of the columns that sort; a leading "-" in the address turns the order round.
SORTS: dict[str, Callable[[Row], Any]] = {
    "rank": lambda row: row.place.rank if row.place else 0,
    "model": lambda row: row.run.model.public_name.casefold(),
    "team": lambda row: row.run.team.name.casefold(),
    "track": lambda row: row.run.track,
    "backend": lambda row: row.run.backend,
    "correct": lambda row: row.shown.rate,
    "fast_1": lambda row: row.shown.fast_1,
    "speedup": lambda row: row.shown.speedup,
    "cost": lambda row: (row.run.cost_usd is None, row.run.cost_usd or 0),
    "date": lambda row: row.run.created_at,
}


def public_scores() -> QuerySet[EvaluationScore]:
    """Scores that anybody may see: the board is the same for every reader, members of teams included."""
    return EvaluationScore.objects.visible_to(AnonymousUser())


def default_target() -> Target | None:
    """The first target, in the maintainers' order, with a public ranked row; before there is one, the first open."""
    with_rows = Target.objects.filter(evaluations__score__in=public_scores().ranked()).order_by("order", "name")
    return with_rows.first() or Target.objects.open().filter(device="cpu").first() or Target.objects.open().first()


def rows(scores: QuerySet[EvaluationScore], *, type_slug: str = "", sort: str = "rank") -> list[Row]:
    """The ranked rows of ``scores``; rank, range and figures are those of the type if one is given."""
    found = [_row(score, type_slug) for score in scores.with_rows().defer("fast_p", "pass_at_k", "fast_1_at_k")]
    of_type = to_bits(Problem.objects.filter(type=type_slug).values_list("number", flat=True)) if type_slug else 0
    places = {place.key: place for place in rank([_contender(row, type_slug, of_type) for row in found])}
    placed = [Row(row.score, row.shown, row.shares, places[row.score.pk]) for row in found]
    placed.sort(key=lambda row: (SORTS["rank"](row), row.run.created_at, row.score.pk))
    descending, key = sort.startswith("-"), SORTS.get(sort.removeprefix("-"), SORTS["rank"])
    return sorted(placed, key=key, reverse=descending)


def baselines(scores: QuerySet[EvaluationScore], *, type_slug: str = "") -> list[Row]:
    """Rows of the reference itself, which stand above the ranking."""
    return [_row(score, type_slug) for score in scores.with_rows()]


def as_of(rows_: Iterable[Row]) -> datetime | None:
    """When the newest of the scores was computed."""
    return max((row.score.updated_at for row in rows_), default=None)


def published_models() -> QuerySet[PublishedResult]:
    """Figures of models that others reported; their own section, never among the rows."""
    return PublishedResult.objects.filter(kind=PublishedResultKind.MODEL)


def _row(score: EvaluationScore, type_slug: str) -> Row:
    by_type = list(score.types.all())
    return Row(score, _shown(score, by_type, type_slug), types.shares(by_type))


def _shown(score: EvaluationScore, by_type: list[TypeScore], type_slug: str) -> Shown:
    if not type_slug:
        return Shown.whole(score)
    row = next((t for t in by_type if t.type == type_slug and t.view == TypeScore.View.PRIMARY), None)
    if row is None:
        return Shown(0, 0, 0.0, 0.0, 1.0, 0, 0.0, 1.0, None, None)
    low, high = wilson(row.correct, row.problems)
    return Shown(
        row.problems, row.correct, row.correctness_rate, low, high, row.faster, row.fast_1, row.speedup, None, None
    )


def _contender(row: Row, type_slug: str, of_type: int) -> Contender:
    solved = row.score.solved
    return Contender(
        key=row.score.pk,
        correctness_rate=row.shown.rate,
        fast_1=row.shown.fast_1,
        speedup=row.shown.speedup,
        solved=solved & of_type if type_slug else solved,
        since=row.run.created_at.timestamp(),
    )
