"""What was achieved on a problem: the best answers, how speedups spread, and how the best improved.

Three bounded queries on the indices ``verdict_best`` and ``verdict_newest``, whatever the number of verdicts.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import AnonymousUser
from django.db.models import QuerySet

from evaluator.contract import Code
from leaderboard import versions
from leaderboard.models import RunState, Standing, Target, Verdict
from leaderboard.models.runs import seen_by
from leaderboard.pages import board
from leaderboard.pages.leading import leading
from leaderboard.plots import Plot
from leaderboard.plots import problem as plots
from problems.models import Problem, Suite

BEST = 20  # runs in the table
READ_FOR_BEST = 100  # verdicts looked at for them: a run of many samples may hold many places
NEWEST = 1_000  # answers in the charts


@dataclass(frozen=True)
class Results:
    """Of one problem on one target. ``timed`` False: a target on which speed is not measured, newest answers first."""

    target: Target
    best: list[Verdict]
    timed: bool
    plots: list[Plot]


def read(problem: Problem, asked: str) -> tuple[list[Target], Target | None, Results | None]:
    """Targets to choose from, the chosen one, and the results there; None where nobody has a correct answer yet."""
    version = versions.current(versions.VERDICTS)
    targets = list(Target.objects.open())
    target = next((t for t in targets if t.name == asked), None) or _first(version)
    if target is None:
        return targets, None, None
    found = versions.cached(version, f"results {problem.pk} {target.pk}", lambda: results(problem, target))
    return targets, target, found


def results(problem: Problem, target: Target) -> Results | None:
    """The results of ``problem`` on ``target``."""
    correct = _public_correct(problem, target)
    timed = correct.filter(speedup__isnull=False)
    best = _one_a_run(timed.order_by("-speedup")[:READ_FOR_BEST])
    if not best:
        newest = _one_a_run(correct.order_by("-created_at")[:READ_FOR_BEST])
        return Results(target, newest, False, []) if newest else None
    newest_first = timed.order_by("-created_at").values_list("created_at", "speedup")
    answers = [plots.Answer(at, speedup) for at, speedup in newest_first[:NEWEST]]
    drawn = (plots.distribution(answers), plots.best_over_time(answers, best[0]))
    return Results(target, best, True, [plot for plot in drawn if plot])


def solved_counts(suite: Suite) -> tuple[Target | None, int, dict[int, tuple[int, int]]]:
    """Of the leading runs of the board that readers see first: how many there are, and for each problem the number of
    those that have it correct, and faster."""
    version = versions.current(versions.BOARD)
    return versions.cached(version, f"solved {suite.pk}", lambda: _solved_counts(suite))


def _solved_counts(suite: Suite) -> tuple[Target | None, int, dict[int, tuple[int, int]]]:
    target = board.default_target()
    scores = leading(target, suite) if target else []
    counts: dict[int, tuple[int, int]] = {}
    for score in scores:
        for number, outcome in score.vector.items():
            correct, faster = counts.get(number, (0, 0))
            counts[number] = correct + outcome.counts, faster + (outcome.counts and outcome.decision == "faster")
    return target, len(scores), counts


def _first(version: str | None) -> Target | None:
    """The target that the leaderboard begins with."""
    return versions.cached(version, "first target", board.default_target)


def _public_correct(problem: Problem, target: Target) -> QuerySet[Verdict]:
    """Correct answers that count, of runs that anybody may see; aliases stand for names as everywhere."""
    return Verdict.objects.filter(
        seen_by(AnonymousUser(), run="evaluation__run__"),
        problem=problem,
        target=target,
        code=Code.CORRECT,
        standing=Standing.COUNTED,
        evaluation__run__state=RunState.ACTIVE,
        evaluation__run__model__is_baseline=False,
    )


def _one_a_run(verdicts: QuerySet[Verdict]) -> list[Verdict]:
    """The first answer of each run, at most ``BEST`` of them."""
    found: dict[int, Verdict] = {}
    for verdict in verdicts.select_related("submission", "evaluation__run__model", "evaluation__run__team"):
        found.setdefault(verdict.evaluation.run_id, verdict)
    return list(found.values())[:BEST]
