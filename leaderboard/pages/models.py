"""Models: the list with the best result of each, and one model with all its runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from django.db.models import QuerySet

from leaderboard.models import EvaluationScore, RankedModel, Run, RunState
from leaderboard.pages import outcome, types
from leaderboard.pages.board import Row, Shown, public_scores
from leaderboard.pages.outcome import Failures


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
    unfinished: list[Run] = field(default_factory=list)

    @property
    def best_by_track(self) -> list[Row]:
        """The row with the highest correctness rate of each track."""
        best: dict[str, Row] = {}
        for row in self.rows:
            track = row.run.track
            if track not in best or row.shown.rate > best[track].shown.rate:
                best[track] = row
        return [best[track] for track in sorted(best)]

    @property
    def failures(self) -> list[Failures]:
        """Over all rows."""
        counts: Counter[str] = Counter()
        for row in self.rows:
            counts.update(row.score.failures)
        return outcome.failures(counts)


def lines() -> list[ModelLine]:
    """Every model with a public ranked result, by name."""
    grouped: dict[int, list[EvaluationScore]] = {}
    scores = public_scores().ranked().select_related("evaluation__run__model__team", "evaluation__target")
    for score in scores.defer("outcomes", "fast_p").in_default_order():
        grouped.setdefault(score.evaluation.run.model_id, []).append(score)
    found = [
        ModelLine(s[0].evaluation.run.model, s[0], len({x.evaluation.run_id for x in s})) for s in grouped.values()
    ]
    return sorted(found, key=lambda line: line.model.public_name.casefold())


def read(model: RankedModel, user: Any) -> ModelPage:
    """One model: results that ``user`` may see, newest first, and runs that are still judged or were withdrawn."""
    scores = EvaluationScore.objects.visible_to(user).filter(
        evaluation__run__model=model, evaluation__run__state=RunState.ACTIVE
    )
    newest = scores.with_rows().order_by("-evaluation__run__created_at", "-pk")
    rows = [Row(score, Shown.whole(score), types.shares(score.types.all())) for score in newest]
    shown = {row.score.evaluation.run_id for row in rows}
    others = Run.objects.visible_to(user).filter(model=model).exclude(pk__in=shown)
    return ModelPage(model, rows, list(others))


def of_user(user: Any) -> QuerySet[RankedModel]:
    """Models of the teams of ``user``, for the submit page."""
    return RankedModel.objects.filter(team__memberships__user=user, is_baseline=False).select_related("team")
