"""Stores the scores of an evaluation as its verdicts have them; all arithmetic is in ``leaderboard.scoring``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.db import transaction

from evaluator.contract import Code, Decision
from leaderboard import scoring
from leaderboard.models import Evaluation, EvaluationScore, Standing, Track, TypeScore, Verdict
from leaderboard.scoring import Outcome, TypeFigures
from problems.models import Problem

Types = dict[int, list[str]]
"""Problem number -> its types, primary first, for every problem of a suite."""


def materialise(evaluation: Evaluation) -> EvaluationScore:
    """Recompute and store the evaluation's rows. Call in the transaction in which a verdict of it lands.

    Five queries and one more for each row of types, whatever the number of verdicts.
    """
    figures, types = compute(evaluation)
    with transaction.atomic():
        score, _ = EvaluationScore.objects.update_or_create(evaluation=evaluation, defaults=figures)
        score.types.all().delete()
        TypeScore.objects.bulk_create(TypeScore(score=score, **row) for row in types)
    return score


def compute(evaluation: Evaluation) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the rows of the evaluation must hold: fields of its ``EvaluationScore``, fields of each ``TypeScore``."""
    types = _types_of(evaluation)
    verdicts = list(
        Verdict.objects.filter(evaluation=evaluation, submission__problem__number__in=types)
        .select_related("submission__problem")
        .order_by("submission__problem__number", "submission__sample", "submission__step")
    )
    track = evaluation.run.track
    chosen = _one_per_problem(verdicts, track)
    outcomes = [outcome_of(verdict) for verdict in chosen]
    figures = {
        **_headline(outcomes, len(types)),
        **_compatible(chosen),
        **(_samples(verdicts, len(types)) if track == Track.MULTI_SAMPLE else {"pass_at_k": {}, "fast_1_at_k": {}}),
        "submissions": evaluation.run.submissions.count(),
        "judged": sum(v.code != Code.HARNESS_FAILURE for v in verdicts),
        "unjudged": sum(v.code == Code.HARNESS_FAILURE for v in verdicts),
        "failures": dict(sorted(Counter(v.code for v in verdicts if v.code != Code.CORRECT).items())),
        "outcomes": {str(v.submission.problem.number): [v.code, v.decision, v.speedup, counts(v)] for v in chosen},
        "scoring_version": scoring.SCORING_VERSION,
    }
    return figures, _type_rows(outcomes, types)


def counts(verdict: Verdict) -> bool:
    """Whether the verdict counts as correct: by its code, and neither held, disqualified nor a duplicate."""
    return verdict.code == Code.CORRECT and verdict.standing == Standing.COUNTED


def outcome_of(verdict: Verdict) -> Outcome:
    """The verdict as the scoring functions take it."""
    correct = counts(verdict)
    return Outcome(
        problem=verdict.submission.problem.number,
        correct=correct,
        faster=correct and verdict.decision == Decision.FASTER,
        speedup=verdict.speedup if correct else None,
        low=verdict.speedup_low if correct else None,
        utilisation=verdict.utilisation if correct else None,
    )


def _types_of(evaluation: Evaluation) -> Types:
    problems = Problem.objects.in_suite(evaluation.suite)
    return {problem.number: problem.types for problem in problems}


def _one_per_problem(verdicts: Sequence[Verdict], track: str) -> list[Verdict]:
    """The verdict that stands for each problem: the best of the samples, the last of an agent's steps.

    An agent decides what its last step is, so it may hand in again what was its best.
    """
    chosen: dict[int, Verdict] = {}
    for verdict in verdicts:
        problem = verdict.submission.problem.number
        other = chosen.get(problem)
        later = track != Track.MULTI_SAMPLE
        if other is None or (_place(verdict) >= _place(other) if later else _quality(verdict) > _quality(other)):
            chosen[problem] = verdict
    return list(chosen.values())


def _place(verdict: Verdict) -> tuple[int, int]:
    return verdict.submission.sample, verdict.submission.step


def _quality(verdict: Verdict) -> tuple[bool, bool, float]:
    correct = counts(verdict)
    return correct, correct and verdict.decision == Decision.FASTER, (verdict.speedup or 0.0) if correct else 0.0


def _headline(outcomes: Sequence[Outcome], n: int) -> dict[str, Any]:
    figures = scoring.type_figures(outcomes, n)
    low, high = scoring.wilson(figures.correct, n)
    speedup_low, speedup_high = scoring.speedup_interval(outcomes, n)
    return {
        **vars(figures),
        "correctness_low": low,
        "correctness_high": high,
        "speedup_low": speedup_low,
        "speedup_high": speedup_high,
        "fast_p": [[p, share] for p, share in scoring.fast_p(outcomes, n)],
    }


def _compatible(chosen: Sequence[Verdict]) -> dict[str, Any]:
    """By the public benchmark's rule. What does not count by ours for its standing does not count here either."""
    correct = [v for v in chosen if v.compatible_correct and v.standing == Standing.COUNTED]
    ratios = [v.compatible_speedup for v in correct if v.compatible_speedup]
    return {
        "compatible_correct": len(correct),
        "compatible_faster": sum(ratio > 1 for ratio in ratios),
        "compatible_speedup": scoring.geomean(ratios),
    }


def _samples(verdicts: Sequence[Verdict], n: int) -> dict[str, Any]:
    """pass@k and fast_1@k over all n problems. Files that we failed to judge are no samples."""
    total: Counter[int] = Counter()
    correct: Counter[int] = Counter()
    faster: Counter[int] = Counter()
    for verdict in verdicts:
        if verdict.code != Code.HARNESS_FAILURE:
            outcome = outcome_of(verdict)
            total[outcome.problem] += 1
            correct[outcome.problem] += outcome.correct
            faster[outcome.problem] += outcome.faster
    levels = scoring.levels(list(total.values()), n)

    def curve(good: Counter[int]) -> dict[str, float]:
        pairs = [(samples, good[problem]) for problem, samples in total.items()]
        return {str(k): scoring.mean_pass_at_k(pairs, k, n) for k in levels}

    return {"pass_at_k": curve(correct), "fast_1_at_k": curve(faster)}


def _type_rows(outcomes: Sequence[Outcome], types: Types) -> list[dict[str, Any]]:
    def rows(view: str, figures: dict[str, TypeFigures]) -> list[dict[str, Any]]:
        return [{"view": view, "type": name, **vars(row)} for name, row in figures.items()]

    primary = {problem: names[:1] for problem, names in types.items()}
    return [
        *rows(TypeScore.View.PRIMARY, scoring.by_type(outcomes, primary)),
        *rows(TypeScore.View.ALSO, scoring.by_type(outcomes, types)),
    ]


def differences(evaluation: Evaluation) -> list[str]:
    """Where the stored rows of the evaluation differ from its verdicts, one sentence each; empty if nowhere."""
    figures, types = compute(evaluation)
    score = EvaluationScore.objects.filter(evaluation=evaluation).first()
    if score is None:
        return ["no score is stored"]
    found = [
        f"{name} is {getattr(score, name)!r}, recomputed {value!r}"
        for name, value in figures.items()
        if getattr(score, name) != value
    ]
    stored = {f"{row.view} {row.type}": row for row in score.types.all()}
    computed = {f"{row['view']} {row['type']}": row for row in types}
    found += [f"the row of {key} is superfluous" for key in sorted(stored.keys() - computed.keys())]
    for key, row in computed.items():
        if key not in stored or any(getattr(stored[key], name) != value for name, value in row.items()):
            found.append(f"the row of {key} differs or is missing")
    return found
