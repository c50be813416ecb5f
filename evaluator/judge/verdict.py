"""From the results of trials to a verdict on correctness, with feedback that says what is wrong where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, cast

import torch

from evaluator.contract import CaseResult, Code
from evaluator.judge.checks import RankCheck
from evaluator.judge.faults import Fault, RankState, clip
from evaluator.judge.mistakes import earlier_output, explain
from evaluator.judge.patterns import describe_mask, lower_precision
from evaluator.judge.trials import TrialResult
from problems.suite.base import Problem

Kind = Literal["public", "hidden", "stress", "structured", "timed"]


def case_result(result: TrialResult, *, kind: Kind | None = None) -> CaseResult:
    """One line of the report's list of cases."""
    case = result.trial.case
    message = ""
    if not result.passed:
        message = "; ".join(result.sentences()) or "refused"
    return CaseResult(
        name=result.trial.name,
        kind=kind or cast(Kind, case.kind),
        passed=result.passed,
        property=clip(case.property),
        message=clip(message),
        ranks_failed=tuple(check.rank for check in result.checks if not check.passed),
    )


def note_errors(ranks: Sequence[RankState], result: TrialResult) -> None:
    """Keeps the largest error and share of bad elements of every rank."""
    for state, check in zip(ranks, result.checks, strict=True):
        for name in ("max_error", "bad_fraction"):
            new, old = getattr(check, name), getattr(state, name)
            if new is not None and (old is None or new > old):
                setattr(state, name, new)


def fault_of_trials(problem: Problem, results: Sequence[TrialResult], ranks: Sequence[RankState]) -> Fault | None:
    """The fault that the first refused trial shows; None if all passed. Writes the patterns into ``ranks``."""
    refused = [result for result in results if not result.passed]
    if not refused:
        return None
    result = refused[0]
    where = _which(result, passed_public=any(r.passed and r.trial.case.kind == "public" for r in results))
    failed = [check for check in result.checks if not check.passed]
    if result.unstable:
        message = (
            f"The output{where} was right when the call returned and wrong 50 ms later: something still writes to it."
        )
        return Fault(Code.RACE, message, normalised="changed after return")
    if result.late:
        message = (
            f"The output{where} was wrong when the call returned and right 50 ms later: the call returns before its "
            "work is done."
        )
        return Fault(Code.WRONG_VALUES, message, normalised="late")
    if not result.structure_ok:
        first = next(check for check in failed if check.structure)
        sentences = "; ".join(dict.fromkeys(first.structure))
        return Fault(Code.WRONG_STRUCTURE, f"Rank {first.rank}{where}: {sentences}."[:1_000], normalised=sentences)
    earlier = earlier_output(problem, failed, [r.trial for r in results[: results.index(result)]])
    return _fault_of_values(problem, result, failed, where, ranks, earlier)


def _fault_of_values(
    problem: Problem,
    result: TrialResult,
    failed: list[RankCheck],
    where: str,
    ranks: Sequence[RankState],
    earlier: str,
) -> Fault:
    case = result.trial.case
    precision = lower_precision(case, failed)
    shares: dict[int, str] = {}
    if earlier:
        shares = {check.rank: f"the output of the trial {earlier!r}, which had other inputs" for check in failed}
    elif not precision:
        shares = explain(problem, result.trial, failed)
    for check in failed:
        ranks[check.rank].pattern = clip(shares.get(check.rank) or _pattern(check, case.world_size))
        ranks[check.rank].primary = check is failed[0]
    worst = max(failed, key=lambda check: check.bad_fraction or 0.0)
    numbers = _numbers(worst)
    who = "Every rank" if len(failed) == len(result.checks) else named([check.rank for check in failed]).capitalize()
    several = 1 < len(failed) < len(result.checks)
    verb, are = ("deliver", "are") if several else ("delivers", "is")
    if precision:
        message = (
            f"{who} {are} imprecise{where}: {numbers}. The errors are small and everywhere, as arithmetic in "
            f"{precision} gives."
        )
        return Fault(Code.IMPRECISE, message, normalised=f"imprecise {precision}")
    pattern = ranks[worst.rank].pattern
    return Fault(
        Code.WRONG_VALUES,
        f"{who} {verb} wrong values{where}: {numbers}; {pattern}.",
        hints=_value_hints(result, failed),
        normalised=f"wrong values {pattern}",
    )


def named(ranks: Sequence[int]) -> str:
    """Ranks in words: "rank 2", "ranks 0, 3"."""
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _which(result: TrialResult, *, passed_public: bool) -> str:
    case = result.trial.case
    if case.kind == "public":
        return ""
    known = " (the public shape passes)" if passed_public else ""
    return (
        f" in the {case.kind} case where {case.property}{known}" if case.property else f" in a {case.kind} case{known}"
    )


def _pattern(check: RankCheck, world_size: int) -> str:
    """Where the first refused tensor of a rank is wrong."""
    pair, value, comparison = check.refused[0]
    if comparison.bad is None or not bool(comparison.bad.any()):
        return f"{pair.path}: {comparison.message}"
    zeros = bool((value == 0).all()) and not bool((pair.leaf.value == 0).all()) if value.numel() else False
    place = describe_mask(comparison.bad, world_size)
    return f"{pair.path}: {'all zeros' if zeros else place}"


def _numbers(check: RankCheck) -> str:
    pair, value, comparison = check.refused[0]
    if comparison.bad is None or not bool(comparison.bad.any()):
        return f"{pair.path}: {comparison.message or 'not valid'}"
    share = comparison.bad_fraction
    text = (
        f"{share:.2%} of {pair.path} is bad"
        if share >= 1e-4
        else f"{int(comparison.bad.sum())} elements of {pair.path} are bad"
    )
    if comparison.max_error is not None:
        text += f", largest error {comparison.max_error:.3g} times the rms of the expected values"
    first = int(comparison.bad.reshape(-1).nonzero()[0])
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(first), pair.leaf.value.shape)) if value.ndim else ()
    return f"{text} on rank {check.rank}, the first at {list(index)}"


def _value_hints(result: TrialResult, failed: list[RankCheck]) -> tuple[str, ...]:
    hints = []
    if any(bool(value.isnan().any()) for check in failed for _, value, _ in check.refused if value.is_floating_point()):
        hints.append("The output holds NaN: memory that was never written is filled with a pattern before each call.")
    return tuple(hints)
