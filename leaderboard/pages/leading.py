"""The leading runs of a board: what analyses over many runs are taken from, so that they cost the same at any size."""

from __future__ import annotations

from leaderboard.models import EvaluationScore, Target
from leaderboard.pages.board import public_scores
from problems.models import Suite

LEADING = 100


def leading(target: Target, suite: Suite) -> list[EvaluationScore]:
    """The first ``LEADING`` public ranked scores on ``target``, in the default order of the board; two queries."""
    scores = public_scores().ranked().filter(evaluation__target=target, evaluation__suite=suite)
    return list(scores.with_rows().in_default_order()[:LEADING])


def best_of_each_model(scores: list[EvaluationScore]) -> list[EvaluationScore]:
    """The first score of each model; ``scores`` in the order of the board."""
    found: dict[int, EvaluationScore] = {}
    for score in scores:
        found.setdefault(score.evaluation.run.model_id, score)
    return list(found.values())
