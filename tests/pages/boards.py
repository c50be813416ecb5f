"""A board with something of everything, for the tests of pages and of the browser."""

from __future__ import annotations

from leaderboard import scores
from leaderboard.models import Standing, Target, Verdict
from problems.models import Problem, Suite
from tests.factories import (
    EvaluationFactory,
    RankedModelFactory,
    RunFactory,
    SubmissionFactory,
    TargetFactory,
    VerdictFactory,
    evaluated_run,
)


def rich_board(suite: Suite) -> None:
    """Tracks, costs, types, difficulties, samples, a held run and a baseline, over a suite of four problems 1 to 4."""
    Problem.objects.filter(number=2).update(type="graph", also=["tensor"], difficulty=4)
    Problem.objects.filter(number=3).update(type="context", difficulty=2)
    target = TargetFactory()
    for name, codes, run in (
        ("Alpha", ("faster", "tie", "faster", "slower"), {"cost_usd": 3, "backend": "cuda"}),
        ("Beta", ("tie", "faster", "deadlock"), {"track": "agentic", "backend": "triton"}),
        ("Gamma", ("wrong_values", "race"), {"cost_usd": 1, "provenance": "logs-attached"}),
        ("Reference", ("tie",) * 4, {}),
    ):
        model = RankedModelFactory(name=name, is_baseline=name == "Reference", open_weights=name == "Beta")
        evaluated_run(*codes, suite=suite, model=model, **run)
    _add_samples(suite, target)
    held = evaluated_run("faster", "faster", "faster", "faster", suite=suite, model=RankedModelFactory(name="Held"))
    Verdict.objects.filter(evaluation=held).update(standing=Standing.HELD)
    scores.materialise(held)


def _add_samples(suite: Suite, target: Target) -> None:
    run = RunFactory(track="multi-sample", model=RankedModelFactory(name="Delta"))
    evaluation = EvaluationFactory(run=run, suite=suite, target=target, state="completed")
    for problem in Problem.objects.in_suite(suite)[:3]:
        for sample in range(4):
            correct = sample != problem.number
            VerdictFactory(
                evaluation=evaluation,
                submission=SubmissionFactory(run=run, problem=problem, sample=sample),
                code="correct" if correct else "wrong_values",
                speedup=1.3 + sample if correct else None,
                utilisation=0.1 + sample / 10 if correct else None,
                compatible_correct=correct,
                compatible_speedup=0.8 + sample if correct else None,
            )
    scores.materialise(evaluation)
