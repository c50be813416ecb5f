"""Models: the list with the best result of each, and one model with all its runs."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from dataclasses import field as default
from typing import Any

from django.db.models import Count, Exists, OuterRef, QuerySet, Subquery
from django.urls import reverse

from leaderboard import profiles, versions
from leaderboard.models import EvaluationScore, EvaluationState, RankedModel, Run, RunState, TypeScore
from leaderboard.pages import outcome, types
from leaderboard.pages.board import Row, Shown, public_scores
from leaderboard.pages.leading import leading
from leaderboard.plots import Plot
from leaderboard.plots import model as plots
from leaderboard.plots import run as run_plots
from leaderboard.plots.model import PastRun, TypeStanding

MOST_ROWS = 200  # of the newest


@dataclass(frozen=True)
class ModelLine:
    """``best``: the score with the highest correctness rate over all targets and tracks."""

    model: RankedModel
    best: EvaluationScore
    runs: int


@dataclass
class ModelPage:
    model: RankedModel
    rows: list[Row]
    unfinished: list[Run] = default(default_factory=list)
    field: list[EvaluationScore] = default(default_factory=list)

    @property
    def best(self) -> Row | None:
        """The complete row with the highest correctness rate."""
        complete = [row for row in self.rows if row.score.evaluation.state == EvaluationState.COMPLETED]
        return max(complete, key=lambda row: row.shown.rate, default=None)

    @property
    def plots(self) -> list[Plot]:
        """Against the field, over time, failures and mechanisms of all rows."""
        stored = [row.score.profile for row in self.rows]
        phases = profiles.failures(stored, "phases")
        pairs = {(phase, code): number for phase, codes in phases.items() for code, number in codes.items()}
        drawn = [
            plots.history([_past(row) for row in self.rows]),
            run_plots.failures(outcome.failures_by_phase(pairs), files=sum(row.score.submissions for row in self.rows)),
            run_plots.mechanisms(profiles.uses(stored)),
        ]
        if self.best:
            title = self.best.score.evaluation.target.title
            standings = _standings(self.best, self.field)
            drawn.insert(0, plots.against_field(standings, runs=len(self.field), target=title))
        return [plot for plot in drawn if plot]

    @property
    def best_by_track(self) -> list[Row]:
        """The row with the highest correctness rate of each track."""
        best: dict[str, Row] = {}
        for row in self.rows:
            track = row.run.track
            if track not in best or row.shown.rate > best[track].shown.rate:
                best[track] = row
        return [best[track] for track in sorted(best)]


def lines() -> list[ModelLine]:
    """Every model with a public ranked result, by name; three queries, which read one score a model."""
    ranked = public_scores().ranked()
    best = ranked.filter(evaluation__run__model=OuterRef("pk")).in_default_order().values("pk")[:1]
    models = RankedModel.objects.annotate(best=Subquery(best)).filter(best__isnull=False)
    scores = EvaluationScore.objects.select_related("evaluation__run__model__team", "evaluation__target")
    found = scores.defer("outcomes", "fast_p", "profile").filter(pk__in=models.values("best"))
    counted = (
        ranked.order_by().values_list("evaluation__run__model").annotate(n=Count("evaluation__run", distinct=True))
    )
    runs: dict[int, int] = dict(counted)
    by_model = [ModelLine(s.evaluation.run.model, s, runs[s.evaluation.run.model_id]) for s in found]
    return sorted(by_model, key=lambda line: line.model.public_name.casefold())


def read(model: RankedModel, user: Any) -> ModelPage:
    """One model: results that ``user`` may see, newest first, and runs that are still judged or were withdrawn."""
    scores = EvaluationScore.objects.visible_to(user).filter(
        evaluation__run__model=model, evaluation__run__state=RunState.ACTIVE
    )
    newest = scores.with_rows().defer("outcomes").order_by("-evaluation__run__created_at", "-pk")[:MOST_ROWS]
    rows = [Row(score, Shown.whole(score), types.shares(score.types.all())) for score in newest]
    judged = EvaluationScore.objects.filter(evaluation__run=OuterRef("pk"))
    others = Run.objects.visible_to(user).filter(model=model)
    others = others.exclude(Exists(judged), state=RunState.ACTIVE).order_by("-created_at")[:MOST_ROWS]
    page = ModelPage(model, rows, list(others))
    page.field = _field(page.best) if page.best else []
    return page


def _field(best: Row) -> list[EvaluationScore]:
    """The leading runs on the board of the model's best run."""
    evaluation = best.score.evaluation
    version = versions.current(versions.BOARD)
    key = f"field {evaluation.target_id} {evaluation.suite_id}"
    return versions.cached(version, key, lambda: leading(evaluation.target, evaluation.suite))


def _standings(best: Row, field: list[EvaluationScore]) -> list[TypeStanding]:
    """The best run's figures by primary type beside those of ``field``."""
    shares: dict[str, list[float]] = {}
    for score in field:
        for row in score.types.all():
            if row.view == TypeScore.View.PRIMARY:
                shares.setdefault(row.type, []).append(row.correctness_rate)
    return [
        TypeStanding(
            share.label,
            share.correct,
            share.total,
            median=statistics.median(shares.get(share.slug, [0.0])),
            best=max(shares.get(share.slug, [0.0])),
        )
        for share in best.shares
        if share.total
    ]


def _past(row: Row) -> PastRun:
    shown, evaluation = row.shown, row.score.evaluation
    return PastRun(
        at=row.run.created_at,
        track=row.run.track,
        address=f"{reverse('run', args=[row.run.public_id])}?on={evaluation.public_id}",
        name=row.run.public_id,
        target=evaluation.target.title,
        rate=shown.rate,
        low=shown.low,
        high=shown.high,
        fast_1=shown.fast_1,
        speedup=shown.speedup,
    )


def of_user(user: Any) -> QuerySet[RankedModel]:
    """Models of the teams of ``user``, for the submit page."""
    return RankedModel.objects.filter(team__memberships__user=user, is_baseline=False).select_related("team")
