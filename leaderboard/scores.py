"""Stores the scores of an evaluation as its verdicts have them; all arithmetic is in ``leaderboard.scoring``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from django.db import transaction

from evaluator.contract import Code, Decision
from leaderboard import profiles, scoring, versions
from leaderboard.models import Evaluation, EvaluationScore, EvaluationState, Standing, Track, TypeScore, Verdict
from leaderboard.scoring import Outcome, ProblemOutcome, TypeFigures
from problems.models import Problem, Suite

Types = dict[int, list[str]]
"""Problem number -> its types, primary first, for every problem of a suite."""
Samples = dict[int, tuple[int, int, int]]
"""Problem number -> files judged, of these correct, of these faster."""


def materialise(evaluation: Evaluation) -> EvaluationScore:
    """Recompute and store the evaluation's rows. Call in the transaction in which a verdict of it lands.

    The number of queries does not depend on the number of verdicts. Boards show complete evaluations alone, so only
    those change their version.
    """
    figures, types = compute(evaluation)
    with transaction.atomic():
        score, _ = EvaluationScore.objects.update_or_create(evaluation=evaluation, defaults=figures)
        score.types.all().delete()
        TypeScore.objects.bulk_create(TypeScore(score=score, **row) for row in types)
        complete = Evaluation.objects.filter(pk=evaluation.pk, state=EvaluationState.COMPLETED).exists()
        versions.bump(*([versions.BOARD] if complete else []), versions.VERDICTS)
    return score


def compute(evaluation: Evaluation) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What the rows of the evaluation must hold: fields of its ``EvaluationScore``, fields of each ``TypeScore``."""
    types = types_of(evaluation.suite)
    verdicts = list(
        Verdict.objects.filter(evaluation=evaluation, submission__problem__number__in=types)
        .select_related("submission__problem")
        .order_by("submission__problem__number", "submission__sample", "submission__step")
    )
    return compute_from(verdicts, types, track=evaluation.run.track, submissions=evaluation.run.submissions.count())


def compute_from(
    verdicts: Sequence[Verdict], types: Types, *, track: str, submissions: int
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """``compute`` without the database: from verdicts with their problems, in order of problem, sample and step."""
    chosen = one_per_problem(verdicts, track)
    samples = _samples(verdicts)
    vector = {v.submission.problem.number: _problem_outcome(v, samples) for v in chosen}
    outcomes = [parts.outcome(problem) for problem, parts in vector.items()]
    figures = {
        **_headline(outcomes, len(types)),
        **_compatible(vector),
        **_at_k(samples if track == Track.MULTI_SAMPLE else {}, len(types)),
        "submissions": submissions,
        "judged": sum(v.code != Code.HARNESS_FAILURE for v in verdicts),
        "unjudged": sum(v.code == Code.HARNESS_FAILURE for v in verdicts),
        "profile": profiles.profile(verdicts, chosen, types, track=track, counts=counts),
        "failures": dict(sorted(Counter(v.code for v in verdicts if v.code != Code.CORRECT).items())),
        "outcomes": {str(problem): list(parts) for problem, parts in vector.items()},
        "solved_bits": f"{scoring.to_bits(o.problem for o in outcomes if o.correct):x}",
        "gains": scoring.gains_of(outcomes),
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


def types_of(suite: Suite) -> Types:
    """Types of the problems of ``suite``."""
    problems = Problem.objects.in_suite(suite)
    return {problem.number: problem.types for problem in problems}


def one_per_problem(verdicts: Sequence[Verdict], track: str) -> list[Verdict]:
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


def _problem_outcome(verdict: Verdict, samples: Samples) -> ProblemOutcome:
    """The parts that are stored. By the public rule, too, nothing counts that does not count for its standing."""
    counted = verdict.standing == Standing.COUNTED
    total, correct, faster = samples.get(verdict.submission.problem.number, (0, 0, 0))
    return ProblemOutcome(
        code=verdict.code,
        decision=verdict.decision,
        speedup=verdict.speedup,
        counts=counts(verdict),
        low=verdict.speedup_low,
        utilisation=verdict.utilisation,
        compatible_correct=counted and bool(verdict.compatible_correct),
        compatible_speedup=verdict.compatible_speedup,
        samples=total,
        correct_samples=correct,
        faster_samples=faster,
        standing=verdict.standing,
    )


def _compatible(vector: Mapping[int, ProblemOutcome]) -> dict[str, Any]:
    correct = [parts for parts in vector.values() if parts.compatible_correct]
    ratios = [parts.compatible_speedup for parts in correct if parts.compatible_speedup]
    return {
        "compatible_correct": len(correct),
        "compatible_faster": sum(ratio > 1 for ratio in ratios),
        "compatible_speedup": scoring.geomean(ratios),
    }


def _samples(verdicts: Sequence[Verdict]) -> Samples:
    """Files, correct ones and faster ones of each problem. Files that we failed to judge are no samples."""
    found: Samples = {}
    for verdict in verdicts:
        if verdict.code != Code.HARNESS_FAILURE:
            outcome = outcome_of(verdict)
            total, correct, faster = found.get(outcome.problem, (0, 0, 0))
            found[outcome.problem] = (total + 1, correct + outcome.correct, faster + outcome.faster)
    return found


def _at_k(samples: Samples, n: int) -> dict[str, Any]:
    """pass@k and fast_1@k over all n problems."""
    levels = scoring.levels([total for total, _, _ in samples.values()], n)

    def curve(good: int) -> dict[str, float]:
        pairs = [(counts[0], counts[good]) for counts in samples.values()]
        return {str(k): scoring.mean_pass_at_k(pairs, k, n) for k in levels}

    return {"pass_at_k": curve(1), "fast_1_at_k": curve(2)}


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
