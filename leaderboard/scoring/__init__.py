"""Every figure of the site, by pure functions: no database, no Django, no clock. docs/methodology explains them."""

from leaderboard.scoring.board import RANKING_RULE, Contender, Place, rank
from leaderboard.scoring.figures import (
    FAST_P_LEVELS,
    SCORING_VERSION,
    Outcome,
    TypeFigures,
    by_type,
    fast_p,
    geomean,
    geomean_correct_only,
    speedup,
    speedup_interval,
    type_figures,
    utilisation,
)
from leaderboard.scoring.proportions import mcnemar, wilson
from leaderboard.scoring.samples import levels, mean_pass_at_k, pass_at_k

__all__ = [
    "FAST_P_LEVELS",
    "RANKING_RULE",
    "SCORING_VERSION",
    "Contender",
    "Outcome",
    "Place",
    "TypeFigures",
    "by_type",
    "fast_p",
    "geomean",
    "geomean_correct_only",
    "levels",
    "mcnemar",
    "mean_pass_at_k",
    "pass_at_k",
    "rank",
    "speedup",
    "speedup_interval",
    "type_figures",
    "utilisation",
    "wilson",
]
