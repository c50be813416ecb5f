"""Every figure of the site, by pure functions: no database, no Django, no clock. docs/methodology explains them."""

from leaderboard.scoring.board import RANKING_RULE, Contender, Place, Ranking, rank, to_bits
from leaderboard.scoring.costs import running_total
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
from leaderboard.scoring.vector import ProblemOutcome, ScopeFigures, gains_of, read_vector, scope_figures

__all__ = [
    "FAST_P_LEVELS",
    "RANKING_RULE",
    "SCORING_VERSION",
    "Contender",
    "Outcome",
    "Place",
    "ProblemOutcome",
    "Ranking",
    "ScopeFigures",
    "TypeFigures",
    "by_type",
    "fast_p",
    "gains_of",
    "geomean",
    "geomean_correct_only",
    "levels",
    "mcnemar",
    "mean_pass_at_k",
    "pass_at_k",
    "rank",
    "read_vector",
    "running_total",
    "scope_figures",
    "speedup",
    "speedup_interval",
    "to_bits",
    "type_figures",
    "utilisation",
    "wilson",
]
