"""The ranking: which rows a selection shows, their places, and the order of the column that the reader chose.

Reads score rows and nothing below them. Of the whole board only what decides order and range is read, a few numbers a
row; everything else is read for the rows of one page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db.models import Exists, F, Max, OuterRef, QuerySet, Value
from django.db.models.functions import Coalesce, Lower, NullIf

from leaderboard import scoring
from leaderboard.charts import TypeShare
from leaderboard.models import EvaluationScore, PublishedResult, PublishedResultKind, Target, TypeScore
from leaderboard.pages import types
from leaderboard.pages.selection import Scope, Selection
from leaderboard.scoring import Contender, Place, Ranking, ScopeFigures
from problems.models import Problem

ROWS_PER_PAGE = 100
BASELINES = 5  # at most so many rows of the reference are pinned


@dataclass(frozen=True)
class Shown:
    """The figures of a row: of the whole suite, or of the part that the reader picked."""

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
    speedup_correct_only: float | None = None
    utilisation: float | None = None
    compatible_correct: int = 0
    compatible_faster: int = 0
    compatible_speedup: float | None = None

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
            speedup_correct_only=score.speedup_correct_only,
            utilisation=score.utilisation,
            compatible_correct=score.compatible_correct,
            compatible_faster=score.compatible_faster,
            compatible_speedup=score.compatible_speedup,
        )

    @classmethod
    def of(cls, score: EvaluationScore, scope: Scope) -> Shown:
        """Over the problems in ``scope``."""
        if scope.whole:
            return cls.whole(score)
        vector = {number: parts for number, parts in score.vector.items() if number in scope.numbers}
        n = len(scope.numbers)
        figures = scoring.type_figures([parts.outcome(number) for number, parts in vector.items()], n)
        compatible = [parts for parts in vector.values() if parts.compatible_correct]
        ratios = [parts.compatible_speedup for parts in compatible if parts.compatible_speedup]
        low, high = scoring.wilson(figures.correct, n)
        return cls(
            problems=n,
            correct=figures.correct,
            rate=figures.correctness_rate,
            low=low,
            high=high,
            faster=figures.faster,
            fast_1=figures.fast_1,
            speedup=figures.speedup,
            speedup_low=None,
            speedup_high=None,
            speedup_correct_only=figures.speedup_correct_only,
            utilisation=figures.utilisation,
            compatible_correct=len(compatible),
            compatible_faster=sum(ratio > 1 for ratio in ratios),
            compatible_speedup=scoring.geomean(ratios),
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

    @property
    def at_k(self) -> list[tuple[str, float, float]]:
        """(k, pass@k, fast_1@k) of a run with several samples, over the whole suite."""
        faster = self.score.fast_1_at_k
        return [
            (k, share, faster[k]) for k, share in sorted(self.score.pass_at_k.items(), key=lambda pair: int(pair[0]))
        ]


@dataclass(frozen=True)
class Board:
    """A selection put in order. ``order``: keys of all its rows as they are shown, from the first page to the last."""

    selection: Selection
    problems: list[Problem]
    scope: Scope
    ranking: Ranking
    order: list[int]
    as_of: datetime | None
    _index: dict[int, int] = field(repr=False)

    @property
    def pages(self) -> int:
        return max(1, -(-len(self.order) // ROWS_PER_PAGE))

    @property
    def page(self) -> int:
        """The page of the selection, or the last one if there are not so many."""
        return min(max(1, self.selection.page), self.pages)

    def rows(self, start: int, stop: int, *, vectors: bool = True) -> list[Row]:
        """The rows in the places ``start`` to ``stop`` of the order, with everything that is shown of them.

        ``vectors`` False leaves the outcomes of single problems unread, which are most of a row.
        """
        keys = self.order[start:stop]
        scores = EvaluationScore.objects.filter(pk__in=keys).with_rows().defer("profile", "gains", "failures")
        if not vectors and self.scope.whole:
            scores = scores.defer("outcomes")
        found = scores.in_bulk()
        return [self._row(found[key]) for key in keys]

    def rows_of_page(self) -> list[Row]:
        start = (self.page - 1) * ROWS_PER_PAGE
        return self.rows(start, start + ROWS_PER_PAGE, vectors=False)

    def baselines(self) -> list[Row]:
        """Rows of the reference itself, which stand above the ranking whatever else is filtered; the newest few."""
        chosen = self.selection
        every = Selection(target=chosen.target, suite=chosen.suite, precision=chosen.precision)
        scores = _scores(every).baselines().with_rows().order_by("-evaluation__run__created_at", "-pk")
        return [self._row(score) for score in scores[:BASELINES]]

    def _row(self, score: EvaluationScore) -> Row:
        view = TypeScore.View.ALSO if self.selection.also else TypeScore.View.PRIMARY
        index = self._index.get(score.pk)
        return Row(
            score,
            Shown.of(score, self.scope),
            types.shares(score.types.all(), view),
            None if index is None else self.ranking.place(index),
        )


def _public_name(path: str) -> Lower:
    return Lower(Coalesce(NullIf(f"{path}alias", Value("")), f"{path}name"))


# Columns that sort, by what the database or the figures have for them; a "-" in the address turns the order round.
COLUMN_ORDERS: dict[str, Any] = {
    "model": _public_name("evaluation__run__model__"),
    "team": Lower("evaluation__run__team__name"),
    "track": F("evaluation__run__track"),
    "backend": F("evaluation__run__backend"),
    "cost": F("evaluation__run__cost_usd"),
    "date": F("evaluation__run__created_at"),
    "correct_only": F("speedup_correct_only"),
    "utilisation": F("utilisation"),
    "at_k": F("pass_at_k"),
    "compatible_correct": F("compatible_correct"),
    "compatible_faster": F("compatible_faster"),
    "compatible_speedup": F("compatible_speedup"),
}
FIGURE_ORDERS: dict[str, Callable[[Contender], float]] = {
    "correct": lambda contender: contender.correctness_rate,
    "fast_1": lambda contender: contender.fast_1,
    "speedup": lambda contender: contender.speedup,
}
WHOLE_SUITE_ONLY = {
    "correct_only",
    "utilisation",
    "at_k",
    "compatible_correct",
    "compatible_faster",
    "compatible_speedup",
}
SORTS = {"rank", *COLUMN_ORDERS, *FIGURE_ORDERS}


def sorts(selection: Selection) -> set[str]:
    """Columns that can be sorted by. Some figures are stored for the whole suite alone."""
    return SORTS - WHOLE_SUITE_ONLY if selection.scoped else SORTS


def public_scores() -> QuerySet[EvaluationScore]:
    """Scores that anybody may see: the board is the same for every reader, members of teams included."""
    return EvaluationScore.objects.visible_to(AnonymousUser())


def default_target() -> Target | None:
    """The first target, in the maintainers' order, with a public ranked row; before there is one, the first open."""
    ranked = public_scores().ranked().filter(evaluation__target=OuterRef("pk"))
    with_rows = Target.objects.filter(Exists(ranked)).order_by("order", "name")
    return with_rows.first() or Target.objects.open().filter(device="cpu").first() or Target.objects.open().first()


def read(selection: Selection) -> Board:
    """The board of ``selection``, in a few queries, of which one or two read a few numbers for each of its rows."""
    problems = list(Problem.objects.in_suite(selection.suite)) if selection.suite else []
    scope = selection.scope(problems)
    scores = _scores(selection).ranked()
    ranking = Ranking(_contenders(scores, scope))
    as_of = scores.aggregate(newest=Max("updated_at"))["newest"]
    index = {contender.key: number for number, contender in enumerate(ranking.ordered)}
    return Board(selection, problems, scope, ranking, _order(scores, ranking, selection), as_of, index)  # type: ignore[arg-type]


def newest(selection: Selection, count: int) -> list[EvaluationScore]:
    """The ranked evaluations of the selection that were finished last."""
    scores = _scores(selection).ranked().with_rows()
    return list(scores.order_by(F("evaluation__finished_at").desc(nulls_last=True), "-pk")[:count])


def published_models() -> QuerySet[PublishedResult]:
    """Figures of models that others reported; their own section, never among the rows."""
    return PublishedResult.objects.filter(kind=PublishedResultKind.MODEL)


def _scores(selection: Selection) -> QuerySet[EvaluationScore]:
    """Public scores that the filters keep."""
    wanted = {
        "evaluation__run__track": selection.track,
        "evaluation__run__backend": selection.backend,
        "evaluation__run__precision": selection.precision,
        "evaluation__run__provenance": selection.provenance,
        "evaluation__run__created_at__date__gte": selection.since,
        "evaluation__run__created_at__date__lte": selection.until,
    }
    scores = public_scores().filter(evaluation__target=selection.target, evaluation__suite=selection.suite)
    scores = scores.filter(**{name: value for name, value in wanted.items() if value})
    if selection.weights:
        scores = scores.filter(evaluation__run__model__open_weights=selection.weights == "open")
    return scores


def _contenders(scores: QuerySet[EvaluationScore], scope: Scope) -> list[Contender]:
    """Every row as the ranking takes it. Earlier runs come first, so that the position says which of two is earlier."""
    names = ["pk", "solved_bits", *(["correctness_rate", "fast_1", "speedup"] if scope.whole else ["gains"])]
    found: list[Contender] = []
    bits = scope.bits
    for key, solved, *figures in scores.order_by("evaluation__run__created_at", "pk").values_list(*names):
        solved_bits = int(solved, 16)
        if not scope.whole:
            figures = list(_ranked_by(scoring.scope_figures(solved_bits, _by_number(figures[0]), bits)))
            solved_bits &= bits
        found.append(Contender(key, *figures, solved=solved_bits, since=len(found)))
    return found


def _ranked_by(figures: ScopeFigures) -> tuple[float, float, float]:
    return figures.correctness_rate, figures.fast_1, figures.speedup


def _by_number(gains: dict[str, float]) -> dict[int, float]:
    return {int(number): gain for number, gain in gains.items()}


def _order(scores: QuerySet[EvaluationScore], ranking: Ranking, selection: Selection) -> list[int]:
    """Keys in the order of the chosen column; equal ones, and those without a value at the end, by rank."""
    descending, column = selection.sort.startswith("-"), selection.sort.removeprefix("-")
    ranked: list[Any] = [contender.key for contender in ranking.ordered]
    if column == "rank" or column not in sorts(selection):
        return ranked[::-1] if descending and column == "rank" else ranked
    if column in FIGURE_ORDERS:
        by_figure = sorted(ranking.ordered, key=FIGURE_ORDERS[column], reverse=descending)
        return [contender.key for contender in by_figure]  # type: ignore[misc]
    values = dict(scores.annotate(by=COLUMN_ORDERS[column]).order_by().values_list("pk", "by"))
    if column == "at_k":
        values = {key: curve.get("1") for key, curve in values.items()}  # pass@1, which every curve has
    return _by_value(ranked, values, descending)


def _by_value(ranked: Sequence[int], values: dict[int, Any], descending: bool) -> list[int]:
    known = [key for key in ranked if values[key] is not None]
    known.sort(key=lambda key: values[key], reverse=descending)
    return known + [key for key in ranked if values[key] is None]
