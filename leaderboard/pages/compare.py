"""Two to four runs side by side: problem by problem, by type, and one problem's files where they may be seen.

Reads the scores of the runs, which hold the outcome of every problem, and no verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from leaderboard.access import may_see_source
from leaderboard.models import Evaluation, EvaluationScore, Run, RunState, Submission
from leaderboard.pages.differences import Difference, between
from leaderboard.plots import Plot
from leaderboard.plots import compare as plots
from leaderboard.scoring import ProblemOutcome
from problems.models import Problem, Type

AT_LEAST, AT_MOST = 2, 4
LETTERS = "ABCD"
WIN, TIE, LOSS, NEITHER = "win", "tie", "loss", "neither"


class CompareError(Exception):
    """The runs cannot be compared; the text says why and what to do. ``missing``: a run was not found."""

    def __init__(self, text: str, *, missing: bool = False) -> None:
        super().__init__(text)
        self.missing = missing


@dataclass(frozen=True)
class Side:
    """One of the runs, with the letter by which the page calls it."""

    letter: str
    score: EvaluationScore

    @property
    def run(self) -> Run:
        return self.score.evaluation.run

    @property
    def name(self) -> str:
        return f"{self.letter} {self.run.model.public_name}"


@dataclass(frozen=True)
class ProblemRow:
    """A problem with each side's outcome (None: not answered) and, for all but the first, A's result against it."""

    problem: Problem
    outcomes: list[ProblemOutcome | None]
    results: list[str]

    @property
    def cells(self) -> list[tuple[ProblemOutcome | None, str]]:
        """(outcome, A's result against it) of each side; A's own result is empty."""
        return list(zip(self.outcomes, ["", *self.results], strict=True))


@dataclass(frozen=True)
class TypeRow:
    """Problems of a type, and for each side the number it has correct and faster."""

    slug: str
    label: str
    problems: int
    figures: list[tuple[int, int]]


@dataclass(frozen=True)
class Comparison:
    sides: list[Side]
    rows: list[ProblemRow]
    types: list[TypeRow]
    evaluations: list[tuple[str, str]] = field(default_factory=list)
    chosen: Problem | None = None
    difference: Difference | None = None
    hidden: list[str] = field(default_factory=list)

    @property
    def tallies(self) -> list[tuple[Side, Counter[str]]]:
        """A against each of the others: how many problems it wins, ties and loses."""
        return [(side, Counter(row.results[number] for row in self.rows)) for number, side in enumerate(self.sides[1:])]

    @property
    def plots(self) -> list[Plot]:
        names = [side.name for side in self.sides]
        pairs = [
            plots.Pair(row.problem, [o.speedup if o and o.counts else None for o in row.outcomes]) for row in self.rows
        ]
        bars = [plots.TypeBar(row.label, row.problems, row.figures) for row in self.types]
        return [plot for plot in (plots.speedups(names, pairs), plots.by_type(names, bars)) if plot]


def result(first: ProblemOutcome | None, other: ProblemOutcome | None) -> str:
    """Whether the first answer wins over the other, by the interval rule.

    A correct answer wins over one that is not. Of two correct ones that which is surely faster wins: the 95 % intervals
    of their speedups do not overlap. Intervals are symmetric in the logarithm, so the upper end is speedup² / low.
    """
    correct = [outcome is not None and outcome.counts for outcome in (first, other)]
    if correct != [True, True]:
        return NEITHER if not any(correct) else WIN if correct[0] else LOSS
    ends = [_interval(outcome) for outcome in (first, other) if outcome is not None]
    if None in ends:
        return TIE
    (low, high), (other_low, other_high) = (end for end in ends if end)
    return WIN if low > other_high else LOSS if high < other_low else TIE


def _interval(outcome: ProblemOutcome) -> tuple[float, float] | None:
    if not outcome.speedup or not outcome.low:
        return None
    return outcome.low, outcome.speedup**2 / outcome.low


def read(ids: Sequence[str], user: Any, *, on: str = "", problem: str = "") -> Comparison:
    """The comparison of the runs ``ids``, on the target ``on`` if they share it, else the newest that they share.

    Raises ``CompareError`` for anything but two to four different runs that ``user`` may see and that were judged on
    one target by one suite.
    """
    runs = find_runs(ids, user)
    if len(runs) < AT_LEAST:
        raise CompareError(f"A comparison needs {AT_LEAST} to {AT_MOST} runs; {len(runs)} given. Add another one.")
    shared = _shared(runs)
    if not shared:
        raise CompareError(
            "These runs have no target and suite version in common on which all have verdicts, so nothing can be "
            "compared. Choose runs of one board."
        )
    scores = next((s for s in shared if s[0].evaluation.target.name == on), shared[0])
    sides = [Side(letter, score) for letter, score in zip(LETTERS, scores, strict=False)]
    problems = list(Problem.objects.in_suite(scores[0].evaluation.suite))
    vectors = [score.vector for score in scores]
    rows = [_row(p, [vector.get(p.number) for vector in vectors]) for p in problems]
    chosen = next((p for p in problems if str(p.number) == problem), None)
    difference, hidden = _files(sides, chosen, user) if chosen else (None, [])
    targets = [(s[0].evaluation.target.name, s[0].evaluation.target.title) for s in shared]
    return Comparison(sides, rows, _types(rows), list(dict.fromkeys(targets)), chosen, difference, hidden)


def find_runs(ids: Sequence[str], user: Any) -> list[Run]:
    """The runs, in the order given, each once. Raises ``CompareError`` for too many and for those not to be seen."""
    wanted = list(dict.fromkeys(text.strip().casefold() for text in ids if text.strip()))
    if len(wanted) > AT_MOST:
        raise CompareError(f"{len(wanted)} runs were given; at most {AT_MOST} fit beside each other. Leave some out.")
    visible = Run.objects.visible_to(user).exclude(state=RunState.WITHDRAWN)
    likely = [text for text in wanted if text.isalnum()]  # PostgreSQL takes no NUL, not even to look for it
    found = {run.public_id: run for run in visible.filter(public_id__in=likely).select_related("model", "team")}
    missing = [text[:40] for text in wanted if text not in found]
    if missing:
        raise CompareError(
            f"There is no run {' and no run '.join(missing)} that you may see. An id has 12 characters and stands at "
            "the end of the run's address.",
            missing=True,
        )
    return [found[text] for text in wanted]


def _shared(runs: Sequence[Run]) -> list[list[EvaluationScore]]:
    """For each target and suite that all runs have scores on, these scores in the order of the runs; newest first."""
    scores = (
        EvaluationScore.objects.filter(evaluation__run__in=runs)
        .select_related("evaluation__run__model", "evaluation__run__team", "evaluation__target", "evaluation__suite")
        .order_by("evaluation__created_at")
    )
    by_place: dict[tuple[int, int], dict[int, EvaluationScore]] = {}
    for score in scores:
        evaluation: Evaluation = score.evaluation
        place = evaluation.target_id, evaluation.suite_id
        by_place.setdefault(place, {})[evaluation.run_id] = score
    complete = [found for found in by_place.values() if len(found) == len(runs)]
    complete.sort(key=lambda found: max(s.evaluation.created_at for s in found.values()), reverse=True)
    return [[found[run.pk] for run in runs] for found in complete]


def _row(problem: Problem, outcomes: list[ProblemOutcome | None]) -> ProblemRow:
    return ProblemRow(problem, outcomes, [result(outcomes[0], other) for other in outcomes[1:]])


def _types(rows: Sequence[ProblemRow]) -> list[TypeRow]:
    found = []
    for value, label in Type.choices:
        of_type = [row for row in rows if row.problem.type == value]
        sides = zip(*(row.outcomes for row in of_type), strict=True)
        figures = [
            (
                sum(o is not None and o.counts for o in outcomes),
                sum(o is not None and o.counts and o.decision == "faster" for o in outcomes),
            )
            for outcomes in sides
        ]
        if of_type:
            found.append(TypeRow(value, label, len(of_type), figures))
    return found


def _files(sides: Sequence[Side], problem: Problem, user: Any) -> tuple[Difference | None, list[str]]:
    """The difference between the first two sides' last files for the problem, and the sides whose file is hidden."""
    files = []
    hidden = []
    for side in sides[:2]:
        file = (
            Submission.objects.filter(run=side.run, problem=problem)
            .select_related("run__team", "source")
            .order_by("-step", "sample")
            .first()
        )
        if file is not None and may_see_source(user, file):
            files.append((side.name, file))
        elif file is not None:
            hidden.append(side.name)
    if len(files) < 2:
        return None, hidden
    (old_name, old), (new_name, new) = files
    return between(old.source.text, new.source.text, old_name=old_name, new_name=new_name), hidden
