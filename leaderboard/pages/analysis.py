"""What the leading runs of a board do: by which mechanisms they move data, and how their files fail.

From stored profiles alone (``EvaluationScore.profile``), of at most ``LEADING`` runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from leaderboard import profiles
from leaderboard.models import EvaluationScore, Target
from leaderboard.pages import outcome
from leaderboard.pages.leading import best_of_each_model, leading
from leaderboard.plots import Plot
from leaderboard.plots import run as plots
from leaderboard.profiles import Use
from problems.models import Suite, Type

MODELS = 20
MECHANISMS = 12


@dataclass(frozen=True)
class Grid:
    """A table of counts: for each row its label, address (or "") and cells; ``slugs`` are types of rows or ""."""

    heads: list[str]
    rows: list[tuple[str, str, list[str]]]


@dataclass(frozen=True)
class Analysis:
    runs: int
    plots: list[Plot]
    mechanisms_by_type: Grid
    mechanisms_by_model: Grid
    failures_by_type: Grid
    failures_by_model: Grid


def read(target: Target, suite: Suite) -> Analysis | None:
    """The analysis of a board; None where no run is ranked yet."""
    scores = leading(target, suite)
    if not scores:
        return None
    stored = [score.profile for score in scores]
    models = best_of_each_model(scores)[:MODELS]
    uses = profiles.uses(stored)
    by_phase = profiles.failures(stored, "phases")
    pairs = {(phase, code): number for phase, codes in by_phase.items() for code, number in codes.items()}
    drawn = (
        plots.mechanisms(uses),
        plots.failures(outcome.failures_by_phase(pairs), files=sum(score.submissions for score in scores)),
    )
    return Analysis(
        runs=len(scores),
        plots=[plot for plot in drawn if plot],
        mechanisms_by_type=_mechanisms_by_type(stored, uses),
        mechanisms_by_model=_mechanisms_by_model(models, uses),
        failures_by_type=_failures_by_type(profiles.failures(stored, "failures")),
        failures_by_model=_failures_by_model(models),
    )


def _common(uses: dict[str, Use]) -> list[str]:
    """The most used mechanisms, at most as many as fit beside each other."""
    return sorted(uses, key=lambda name: (-uses[name].answers, name))[:MECHANISMS]


def _use_text(use: Use | None) -> str:
    """ "12 / 8 / 3": answers, correct, faster."""
    return f"{use.answers} / {use.correct} / {use.faster}" if use else "–"


def _mechanisms_by_type(stored: list[dict[str, object]], uses: dict[str, Use]) -> Grid:
    names = _common(uses)
    rows = []
    for value, label in Type.choices:
        of_type = profiles.uses(stored, of_type=value)
        if of_type:
            rows.append((label, "", [_use_text(of_type.get(name)) for name in names]))
    return Grid(["Type", *names], rows)


def _mechanisms_by_model(models: list[EvaluationScore], uses: dict[str, Use]) -> Grid:
    names = _common(uses)
    rows = []
    for score in models:
        own = profiles.uses([score.profile])
        rows.append((*_model(score), [_use_text(own.get(name)) for name in names]))
    return Grid(["Model", *names], rows)


def _failures_by_type(by_type: dict[str, Counter[str]]) -> Grid:
    codes = _codes(by_type.values())
    rows = [
        (label, "", [str(by_type[value][code] or "–") for code in codes])
        for value, label in Type.choices
        if value in by_type
    ]
    return Grid(["Type", *(outcome.CODE_TEXTS[code] for code in codes)], rows)


def _failures_by_model(models: list[EvaluationScore]) -> Grid:
    codes = _codes(Counter(score.failures) for score in models)
    rows = [(*_model(score), [str(score.failures.get(code) or "–") for code in codes]) for score in models]
    return Grid(["Model", *(outcome.CODE_TEXTS[code] for code in codes)], rows)


def _codes(counters: object) -> list[str]:
    """Codes that occur, in the order in which a file meets them."""
    seen = {code for counter in counters for code in counter}  # type: ignore[attr-defined]
    return [code for code in outcome.STAGES if code in seen]


def _model(score: EvaluationScore) -> tuple[str, str]:
    run = score.evaluation.run
    return run.model.public_name, run.public_id
