"""What a wrong result looks like: where the bad elements are, and which simple mistake would give just this."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from evaluator.judge.checks import RankCheck
from evaluator.judge.trials import Trial
from problems.suite.base import Args, Case, Close, Expected, Leaf, Problem
from problems.suite.compare import compare, error_of, scale

WIDESPREAD = 0.25
"""Share of elements with an error of about the lower precision's size above which an error is everywhere."""
NOTICEABLE = 1 / 32
"""Error in units of the lower precision's rounding from which an element counts for that."""

# What one level of precision below the run dtype may cost, in its unit roundoff: next level, unit roundoff.
_LOWER: dict[torch.dtype, tuple[tuple[str, float], ...]] = {
    torch.float64: (("float32", 2.0**-24), ("bfloat16", 2.0**-8)),
    torch.float32: (("TF32 or float16", 2.0**-11), ("bfloat16", 2.0**-8)),
    torch.float16: (("bfloat16", 2.0**-8), ("float8", 2.0**-4)),
    torch.bfloat16: (("bfloat16 with rounded intermediate results", 2.0**-6), ("float8", 2.0**-4)),
}
ROUNDINGS = 4.0


def describe_mask(bad: torch.Tensor) -> str:
    """Where the True elements are: everything, rows, columns, a tail, or scattered. Sizes are in elements."""
    if bad.ndim == 0 or bool(bad.all()):
        return "everything" if bad.numel() > 1 else "the value"
    flat = bad.reshape(-1)
    count, total = int(flat.sum()), flat.numel()
    if bad.ndim > 1:
        for dim, word in ((0, "rows"), (bad.ndim - 1, "columns")):
            lines = bad.movedim(dim, 0).reshape(bad.shape[dim], -1)
            touched = lines.any(dim=1)
            filled = float(lines[touched].double().mean())
            if not bool(touched.all()) and filled > 0.5:
                return f"{word} {_ranges(touched)} of {bad.shape[dim]}"
    first = int(flat.nonzero()[0])
    if first > 0 and count > 0.5 * (total - first):
        return f"tail after element {first} of {total}"
    last = int(flat.nonzero()[-1])
    if count > 0.5 * (last - first + 1):
        return f"elements {first}-{last} of {total}"
    return f"{count} of {total} elements, scattered"


def _ranges(touched: torch.Tensor) -> str:
    """Indices of the True entries as ranges, at most four of them."""
    ranges: list[list[int]] = []
    for index in touched.nonzero().flatten().tolist():
        if ranges and ranges[-1][1] == index - 1:
            ranges[-1][1] = index
        else:
            ranges.append([index, index])
    texts = [f"{low}-{high}" if high > low else str(low) for low, high in ranges[:4]]
    return ", ".join(texts) + (", …" if len(ranges) > 4 else "")


def lower_precision(case: Case, checks: list[RankCheck]) -> str:
    """Name of the precision whose rounding explains the errors of every refused tensor; "" if none does.

    The errors must be small everywhere, ROUNDINGS times the unit roundoff against rms and value, and be spread over
    the tensor as rounding is: missing data is large somewhere or sits in one place.
    """
    refused = [entry for check in checks for entry in check.refused]
    if not refused or not all(isinstance(pair.leaf.rule, Close) for pair, _, _ in refused):
        return ""
    for name, unit in _LOWER.get(case.dtype, ()):
        if all(_fits(pair.leaf, value, unit) for pair, value, _ in refused):
            return name
    return ""


def _fits(leaf: Leaf, value: torch.Tensor, unit: float) -> bool:
    error = error_of(leaf, value)
    small = error <= ROUNDINGS * unit * (scale(leaf) + leaf.value.abs())
    spread = float((error > NOTICEABLE * unit * scale(leaf)).double().mean())
    return bool(small.all()) and spread > WIDESPREAD


def missing_share(problem: Problem, case: Case, arguments: list[Args], checks: list[RankCheck]) -> dict[int, str]:
    """For every failed rank whose outputs are just right without one rank's share: which one is missing.

    Tries the oracle with the floats of one rank after the other set to zero, and with all but the rank's own.
    """
    found: dict[int, str] = {}
    failed = [check for check in checks if check.refused and not check.structure]
    for what, blanked in _hypotheses(problem, arguments, [check.rank for check in failed]):
        try:
            expected = problem.oracle(case, blanked)
        except (ArithmeticError, RuntimeError, ValueError, IndexError):
            continue  # the mathematics does not allow this hypothesis
        for check in failed:
            if check.rank not in found and what[0] in (None, check.rank) and _agrees(problem, case, check, expected):
                found[check.rank] = what[1]
    return found


def earlier_output(problem: Problem, checks: list[RankCheck], earlier: Sequence[Trial]) -> str:
    """Name of the earlier trial whose expected outputs all failed ranks have delivered again; "" if there is none."""
    for trial in earlier:
        if all(_agrees(problem, trial.case, check, trial.expected) for check in checks):
            return trial.name
    return ""


def _hypotheses(
    problem: Problem, arguments: list[Args], failed: list[int]
) -> Iterator[tuple[tuple[int | None, str], list[Args]]]:
    blank = problem.blank or _blank
    world = range(len(arguments))
    for missing in world:
        text = f"exactly rank {missing}'s share missing"
        yield (None, text), [blank(a) if rank == missing else a for rank, a in enumerate(arguments)]
    for own in failed if len(arguments) > 2 else ():
        text = "only this rank's own share present"
        yield (own, text), [a if rank == own else blank(a) for rank, a in enumerate(arguments)]


def _blank(arguments: Args) -> Args:
    return {name: _zeroed(value) for name, value in arguments.items()}


def _zeroed(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return torch.zeros_like(value) if value.is_floating_point() or value.is_complex() else value
    if isinstance(value, list | tuple):
        return type(value)(_zeroed(item) for item in value)
    return value


def _agrees(problem: Problem, case: Case, check: RankCheck, expected: list[Expected]) -> bool:
    """True if every refused tensor of the rank is what the hypothesis gives, and differs from the oracle by it."""
    wanted = dict(_by_path(expected[check.rank]))
    for pair, value, _ in check.refused:
        leaf = wanted.get(pair.path)
        if leaf is None or leaf.value.shape != pair.leaf.value.shape:
            return False
        # Judged on the scale of the true result: with a share missing its own may be much smaller.
        merged = replace(leaf, rule=Close()) if leaf.value.is_floating_point() else leaf
        if not compare(merged, value, problem.tolerance(case.dtype)).passed:
            return False
    return bool(check.refused)


def _by_path(expected: Expected) -> Iterator[tuple[str, Leaf]]:
    yield from _paths(expected.output, "output")


def _paths(expected: Any, path: str) -> Iterator[tuple[str, Leaf]]:
    if isinstance(expected, Leaf):
        yield path, expected
    elif isinstance(expected, dict):
        for key, item in expected.items():
            yield from _paths(item, f"{path}[{key!r}]")
    elif isinstance(expected, list | tuple):
        for index, item in enumerate(expected):
            yield from _paths(item, f"{path}[{index}]")
