"""How the files of an evaluation move data, where they fail, and how an agent's answers change from step to step.

Pure functions on verdicts, stored with the scores (``EvaluationScore.profile``), so that no page adds up verdicts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from evaluator.contract import Code, Decision
from leaderboard import scoring
from leaderboard.models import Track, Verdict

Counts = Callable[[Verdict], bool]
STATIC = " (static)"


class Use(NamedTuple):
    """Answers that use a mechanism: how many, how many of them count as correct, how many of these are faster."""

    answers: int
    correct: int
    faster: int

    def __add__(self, other: object) -> Use:
        if not isinstance(other, Use):
            return NotImplemented
        return Use(*(a + b for a, b in zip(tuple(self), tuple(other), strict=True)))


class Step(NamedTuple):
    """Where an agent stands after a step: problems answered so far; of their latest answers, correct and faster ones;
    problems that any answer so far got correct, and got faster; US dollars and tokens that were
    spent on all files so far, None if not known."""

    step: int
    answered: int
    correct: int
    faster: int
    ever_correct: int
    ever_faster: int
    cost_usd: float | None = None
    cost_tokens: int | None = None


def profile(
    verdicts: Sequence[Verdict],
    chosen: Sequence[Verdict],
    types: Mapping[int, Sequence[str]],
    *,
    track: str,
    counts: Counts,
) -> dict[str, Any]:
    """What is stored. ``chosen``: the verdict that stands for each problem; ``types``: problem -> its types.

    mechanisms: {type: {mechanism: Use}} of the chosen; failures: {type: {code: files}} and phases: {phase: {code:
    files}} of all; steps: [Step, …], of agentic runs only. Types are primary ones.
    """
    return {
        "mechanisms": _mechanisms(chosen, types, counts),
        "failures": _table((types[v.submission.problem.number][0], v.code) for v in _failed(verdicts)),
        "phases": _table((v.failed_phase, v.code) for v in _failed(verdicts)),
        "steps": [list(step) for step in _steps(verdicts, counts)] if track == Track.AGENTIC else [],
    }


def mechanism_name(label: str) -> str:
    """A mechanism without the mark that only its source, and no profiler, has shown it."""
    return label.removesuffix(STATIC)


def uses(profiles: Iterable[Mapping[str, Any]], *, of_type: str = "") -> dict[str, Use]:
    """Mechanism -> how often it is used, over several profiles; of one type if it is given."""
    total: dict[str, Use] = {}
    for stored in profiles:
        for name, mechanisms in stored.get("mechanisms", {}).items():
            if not of_type or name == of_type:
                for mechanism, counted in mechanisms.items():
                    total[mechanism] = total.get(mechanism, Use(0, 0, 0)) + Use(*counted)
    return total


def failures(profiles: Iterable[Mapping[str, Any]], part: str) -> dict[str, Counter[str]]:
    """First key of ``part`` ("failures": type, "phases": phase) -> code -> files, over several profiles."""
    total: dict[str, Counter[str]] = {}
    for stored in profiles:
        for name, codes in stored.get(part, {}).items():
            total.setdefault(name, Counter()).update(codes)
    return total


def steps(stored: Mapping[str, Any]) -> list[Step]:
    """The steps of an agentic run's profile."""
    return [Step(*parts) for parts in stored.get("steps", [])]


def _failed(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return [verdict for verdict in verdicts if verdict.code != Code.CORRECT]


def _mechanisms(
    chosen: Sequence[Verdict], types: Mapping[int, Sequence[str]], counts: Counts
) -> dict[str, dict[str, list[int]]]:
    found: dict[str, dict[str, Use]] = {}
    for verdict in chosen:
        correct = counts(verdict)
        use = Use(1, int(correct), int(correct and verdict.decision == Decision.FASTER))
        of_type = found.setdefault(types[verdict.submission.problem.number][0], {})
        for name in {mechanism_name(label) for label in verdict.mechanisms}:
            of_type[name] = of_type.get(name, Use(0, 0, 0)) + use
    return {
        name: {mechanism: list(use) for mechanism, use in sorted(of_type.items())}
        for name, of_type in sorted(found.items())
        if of_type
    }


def _table(pairs: Iterable[tuple[str, str]]) -> dict[str, dict[str, int]]:
    counted: dict[str, Counter[str]] = {}
    for name, code in pairs:
        counted.setdefault(name, Counter())[code] += 1
    return {name: dict(sorted(codes.items())) for name, codes in sorted(counted.items())}


def _steps(verdicts: Sequence[Verdict], counts: Counts) -> list[Step]:
    """One entry a step. An agent that is done with a problem leaves its last answer standing."""
    by_step: dict[int, list[Verdict]] = {}
    for verdict in verdicts:
        by_step.setdefault(verdict.submission.step, []).append(verdict)
    latest: dict[int, tuple[bool, bool]] = {}
    ever: dict[int, tuple[bool, bool]] = {}
    numbers = sorted(by_step)
    spent = scoring.running_total([v.submission.cost_usd for v in by_step[number]] for number in numbers)
    tokens = scoring.running_total([v.submission.cost_tokens for v in by_step[number]] for number in numbers)
    found = []
    for number, usd, so_many in zip(numbers, spent, tokens, strict=True):
        for verdict in by_step[number]:
            correct = counts(verdict)
            now = correct, correct and verdict.decision == Decision.FASTER
            problem = verdict.submission.problem.number
            before = ever.get(problem, (False, False))
            latest[problem], ever[problem] = now, (before[0] or now[0], before[1] or now[1])
        sums = [sum(part) for pairs in (latest, ever) for part in zip(*pairs.values(), strict=True)]
        found.append(Step(number, len(latest), *sums, None if usd is None else float(usd), so_many))
    return found
