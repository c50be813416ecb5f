"""What a wrong result looks like: where the bad elements are, and whether a lower precision explains them."""

from __future__ import annotations

import torch

from evaluator.judge.checks import RankCheck
from problems.suite.base import Case, Close, Leaf
from problems.suite.compare import error_of, scale

WIDESPREAD = 0.25
"""Share of elements with an error of about the lower precision's size above which an error is everywhere."""
NEARLY_ALL = 0.95
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


def describe_mask(bad: torch.Tensor, world_size: int = 1) -> str:
    """Where the True elements are: everything, rows, columns, a tail, or scattered. Sizes are in elements.

    Rows or columns that are just the blocks of some ranks, if all are cut evenly, are said to be theirs.
    """
    if bad.ndim == 0 or bool(bad.all()):
        return "everything" if bad.numel() > 1 else "the value"
    flat = bad.reshape(-1)
    count, total = int(flat.sum()), flat.numel()
    if count > NEARLY_ALL * total:
        return "nearly everything"
    if bad.ndim > 1:
        for dim, word in ((0, "rows"), (bad.ndim - 1, "columns")):
            lines = bad.movedim(dim, 0).reshape(bad.shape[dim], -1)
            touched = lines.any(dim=1)
            filled = float(lines[touched].double().mean())
            if not bool(touched.all()) and filled > 0.5:
                return f"{word} {_ranges(touched)} of {bad.shape[dim]}{_owners(touched, world_size)}"
    first = int(flat.nonzero()[0])
    if first > 0 and count > 0.5 * (total - first):
        return f"tail after element {first} of {total}"
    last = int(flat.nonzero()[-1])
    if count > 0.5 * (last - first + 1):
        return f"elements {first}-{last} of {total}"
    return f"{count} of {total} elements, scattered"


def _owners(touched: torch.Tensor, world_size: int) -> str:
    """Whose blocks the True entries fill, where the entries are cut evenly among the ranks; "" if nobody's."""
    if world_size < 2 or len(touched) % world_size:
        return ""
    blocks = touched.view(world_size, -1)
    if not bool((blocks.all(dim=1) | ~blocks.any(dim=1)).all()):
        return ""
    owners = blocks.all(dim=1).nonzero().flatten().tolist()
    return f", those of {'rank' if len(owners) == 1 else 'ranks'} {', '.join(map(str, owners))}"


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
