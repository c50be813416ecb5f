"""A run as its page shows it: one cell for each of the N problems, grouped by type, and what fails in which phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from django.db.models import Prefetch, QuerySet
from django.urls import reverse

from evaluator.contract import Code
from leaderboard import profiles
from leaderboard.access import is_inside, is_member
from leaderboard.models import (
    Attempt,
    Evaluation,
    EvaluationScore,
    EvaluationState,
    Run,
    RunState,
    Submission,
    Verdict,
)
from leaderboard.pages import outcome, queue
from leaderboard.pages.outcome import Failures, State
from leaderboard.pages.queue import Place, retriable_in
from leaderboard.plots import Plot
from leaderboard.plots import run as plots
from leaderboard.plots.run import Point
from leaderboard.scores import counts, one_per_problem
from problems.models import Problem, Type

OPEN = (EvaluationState.QUEUED, EvaluationState.RUNNING)


@dataclass(frozen=True)
class Answer:
    """A submission with its state in the evaluation that is shown."""

    submission: Submission
    state: State
    verdict: Verdict | None


@dataclass(frozen=True)
class Cell:
    """A problem and the answers to it: none, one, or several samples or steps."""

    problem: Problem
    answers: list[Answer]

    @property
    def tone(self) -> str:
        """Of the best answer, so that one good sample shows."""
        tones = [answer.state.tone for answer in self.answers]
        return next((tone for tone in ("busy", "good", "warn", "bad", "calm") if tone in tones), "calm")


@dataclass(frozen=True)
class Group:
    """The cells of one type."""

    slug: str
    label: str
    cells: list[Cell]

    @property
    def correct(self) -> int:
        return sum(any(a.verdict and a.verdict.code == Code.CORRECT for a in cell.answers) for cell in self.cells)


@dataclass(frozen=True)
class RunPage:
    run: Run
    member: bool
    evaluation: Evaluation | None = None
    evaluations: list[Evaluation] = field(default_factory=list)
    score: EvaluationScore | None = None
    groups: list[Group] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)
    place: Place | None = None
    retriable: int = 0
    may_retry: bool = False

    @property
    def live(self) -> bool:
        """Whether anything may still change, so that the page asks again."""
        return self.evaluation is not None and self.evaluation.state in OPEN

    @property
    def finished(self) -> int:
        return sum(answer.state.final for answer in self.answers)

    @property
    def judged(self) -> list[Answer]:
        """Answers with a verdict, fastest first, then those without a time in the order of their problems."""
        found = [answer for answer in self.answers if answer.verdict]
        return sorted(found, key=lambda a: -(a.verdict.speedup or 0.0) if a.verdict else 0.0)

    @property
    def plots(self) -> list[Plot]:
        """The charts of what is judged so far."""
        standing = one_per_problem([a.verdict for a in self.answers if a.verdict], self.run.track)
        timed = [_point(verdict) for verdict in standing if _is_timed(verdict)]
        failed = Counter(
            (a.verdict.failed_phase, a.verdict.code)
            for a in self.answers
            if a.verdict and a.verdict.code != Code.CORRECT
        )
        profile = self.score.profile if self.score else {}
        steps = profiles.steps(profile)
        drawn = (
            plots.waterfall(timed),
            plots.roofline(timed),
            plots.agent_steps(steps, self.score.problems if self.score else 0),
            plots.step_costs(steps),
            plots.failures(outcome.failures_by_phase(failed), files=sum(bool(a.verdict) for a in self.answers)),
            plots.mechanisms(profiles.uses([profile])),
        )
        return [plot for plot in drawn if plot]

    @property
    def costs_unknown(self) -> bool:
        """Whether an agent's run has no curve of costs."""
        return plots.step_costs(profiles.steps(self.score.profile if self.score else {})) is None

    @property
    def step_files(self) -> list[tuple[str, str]]:
        """Name and address of each file of the run's steps; none for runs without."""
        if not (self.score and self.evaluation and self.score.profile.get("steps")):
            return []
        query = f"?on={self.evaluation.public_id}"
        return [
            (name, reverse("run-steps", args=[self.run.public_id, kind]) + query)
            for kind, name in (("csv", "CSV"), ("json", "JSON"), ("parquet", "Parquet"))
        ]

    @property
    def failures(self) -> list[Failures]:
        return outcome.failures(Counter(a.verdict.code for a in self.answers if a.verdict))


def read(run: Run, user: Any, evaluation_id: str = "") -> RunPage:
    """The page of ``run``, for its evaluation ``evaluation_id`` or else the newest one.

    Of a withdrawn run, people outside its team see the tombstone: no evaluation, no answers.
    """
    if run.state == RunState.WITHDRAWN and not is_inside(user, run.team):
        return RunPage(run, member=False)
    evaluations = list(run.evaluations.select_related("target", "suite").order_by("-created_at"))
    chosen = next((e for e in evaluations if e.public_id == evaluation_id), evaluations[0] if evaluations else None)
    member = is_member(user, run.team)
    if chosen is None:
        return RunPage(run, member)
    answers = [_answer(submission) for submission in _submissions(run, chosen)]
    return RunPage(
        run=run,
        member=member,
        evaluation=chosen,
        evaluations=evaluations,
        score=EvaluationScore.objects.filter(evaluation=chosen).prefetch_related("types").first(),
        groups=_groups(Problem.objects.in_suite(chosen.suite), answers),
        answers=answers,
        place=queue.place_of(chosen) if chosen.state in OPEN else None,
        retriable=retriable_in(chosen),
        may_retry=is_inside(user, run.team),
    )


def score_with_steps(run: Run, user: Any, evaluation_id: str = "") -> EvaluationScore | None:
    """The score of the evaluation that ``read`` chooses, if it has steps and ``user`` may see it; else None."""
    if run.state == RunState.WITHDRAWN and not is_inside(user, run.team):
        return None
    scores = EvaluationScore.objects.filter(evaluation__run=run).order_by("-evaluation__created_at")
    if evaluation_id:
        scores = scores.filter(evaluation__public_id=evaluation_id)
    score = scores.select_related("evaluation__run__model", "evaluation__target", "evaluation__suite").first()
    return score if score and score.profile.get("steps") else None


def _submissions(run: Run, evaluation: Evaluation) -> QuerySet[Submission]:
    return run.submissions.select_related("problem").prefetch_related(
        Prefetch(
            "verdicts",
            Verdict.objects.filter(evaluation=evaluation).select_related("evaluation"),
            to_attr="shown_verdicts",
        ),
        Prefetch(
            "attempts", Attempt.objects.filter(evaluation=evaluation).order_by("-number"), to_attr="shown_attempts"
        ),
    )


def _answer(submission: Any) -> Answer:
    verdict = next(iter(submission.shown_verdicts), None)
    attempt = next(iter(submission.shown_attempts), None)
    return Answer(submission, outcome.of_verdict(verdict) if verdict else outcome.of_attempt(attempt), verdict)


def _is_timed(verdict: Verdict) -> bool:
    return counts(verdict) and None not in (verdict.speedup, verdict.speedup_low, verdict.candidate_seconds)


def _point(verdict: Any) -> Point:
    submission = verdict.submission
    return Point(
        label=f"{submission.problem.number} {submission.problem.slug}",
        type=submission.problem.type,
        address=f"{reverse('submission', args=[submission.public_id])}?on={verdict.evaluation.public_id}",
        decision=verdict.decision,
        speedup=verdict.speedup,
        low=verdict.speedup_low,
        high=verdict.speedup_high,
        seconds=verdict.candidate_seconds,
        overlap=verdict.bound_seconds,
        serial=verdict.serial_bound_seconds,
        utilisation=verdict.utilisation,
    )


def _groups(problems: Iterable[Problem], answers: list[Answer]) -> list[Group]:
    by_problem: dict[int, list[Answer]] = {}
    for answer in answers:
        by_problem.setdefault(answer.submission.problem_id, []).append(answer)
    cells: dict[str, list[Cell]] = {}
    for problem in problems:
        cells.setdefault(problem.type, []).append(Cell(problem, by_problem.get(problem.pk, [])))
    return [Group(value, label, cells[value]) for value, label in Type.choices if value in cells]
