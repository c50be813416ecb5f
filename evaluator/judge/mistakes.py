"""Which simple mistake gives just what was delivered: each is a hypothesis that is computed and compared.

Two kinds: what can be seen from the expected outputs (another rank's output, transposed, blocks in another order, a
constant factor), and what the oracle says for changed inputs (a share missing or counted twice, data of another call).
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from evaluator.judge.checks import RankCheck
from evaluator.judge.trials import Trial, TrialResult
from problems.suite import trees
from problems.suite.base import Args, Case, Close, Exact, Expected, Leaf, Problem
from problems.suite.compare import compare

ORACLE_SECONDS = 10.0
"""After this long no further hypothesis is put to the oracle: large shapes take it seconds each."""
MIXED_SHARE = 0.5
"""Share of the wrong elements that data of another call must explain; a race may spoil the rest otherwise."""


MOST_RANKS_MIXED = 4
"""Up to so many ranks every mixture of two calls is tried; beyond, one rank's data or all but one's."""


def explain(problem: Problem, trial: Trial, checks: Sequence[RankCheck]) -> dict[int, str]:
    """For failed ranks whose refused tensors are just what a mistake gives: the mistake, in words."""
    found = _seen(problem, trial, checks)
    if len(found) < len(checks):
        found = missing_share(problem, trial.case, trial.arguments, checks) | found
    return found


def earlier_output(problem: Problem, checks: Sequence[RankCheck], earlier: Sequence[Trial]) -> str:
    """Name of the earlier trial whose expected outputs all failed ranks have delivered again; "" if there is none."""
    for trial in earlier:
        if all(_agrees(problem, trial.case, check, trial.expected[check.rank]) for check in checks):
            return trial.name
    return ""


# What the expected outputs alone show.


def _seen(problem: Problem, trial: Trial, checks: Sequence[RankCheck]) -> dict[int, str]:
    others = {check.rank: _whose(problem, trial, check) for check in checks}
    steps = {(other - rank) % len(trial.expected) for rank, other in others.items() if other is not None}
    shifted = len(steps) == 1 and None not in others.values() and len(checks) == len(trial.expected)
    tail = f"; all outputs are shifted by {_ranks(steps.pop())}" if shifted else ""
    found: dict[int, str] = {}
    for check in checks:
        other = others[check.rank]
        words = _rearranged(problem, trial.case, check, len(trial.expected)) if other is None else ""
        if other is not None:
            found[check.rank] = f"the output of rank {other}{tail}"
        elif words:
            found[check.rank] = words
    return found


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"


def _whose(problem: Problem, trial: Trial, check: RankCheck) -> int | None:
    for other, expected in enumerate(trial.expected):
        if other != check.rank and _agrees(problem, trial.case, check, expected):
            return other
    return None


def _rearranged(problem: Problem, case: Case, check: RankCheck, world_size: int) -> str:
    """What was done to every refused tensor of the rank, if it is the same for all; "" if nothing fits."""
    words = {_one_tensor(problem, case, pair.leaf, value, world_size) for pair, value, _ in check.refused}
    return words.pop() if len(words) == 1 else ""


def _one_tensor(problem: Problem, case: Case, leaf: Leaf, value: torch.Tensor, world_size: int) -> str:
    if not isinstance(leaf.rule, Close | Exact) or leaf.value.ndim == 0 or leaf.value.numel() < 2:
        return ""

    def is_it(hypothesis: torch.Tensor) -> bool:
        return hypothesis.shape == value.shape and _same(problem, case, leaf, hypothesis, value)

    expected = leaf.value
    if expected.ndim >= 2:
        turned = expected.transpose(-1, -2)
        if is_it(turned):
            return "transposed"
        if is_it(turned.reshape(expected.shape)):
            return "the expected elements in column-major order"
    return (
        _factor(expected, value, is_it, world_size)
        or _blocks(expected, value, world_size, lambda a, b: _same(problem, case, leaf, a, b))
        or _rolled(expected, is_it)
    )


def _factor(expected: torch.Tensor, value: torch.Tensor, is_it: Callable[[torch.Tensor], bool], world_size: int) -> str:
    """A constant factor, in the words of the mistakes that give it."""
    if not value.is_floating_point():
        return ""
    wide = value.double()
    norm = float(expected.square().sum()) if bool(expected.isfinite().all()) else 0.0
    factor = float((wide * expected).sum()) / norm if norm and bool(wide.isfinite().all()) else 0.0
    if factor == 0.0 or not is_it(expected * factor):
        return ""
    known = {1.0 / world_size: "the expected values divided by the number of ranks", -1.0: "the sign is reversed"}
    known |= {float(world_size): "the expected values times the number of ranks"}
    for number, words in known.items():
        if abs(factor - number) <= 1e-2 * abs(number):
            return words
    return f"everything is {factor:.4g} times the expected value"


def _blocks(
    expected: torch.Tensor,
    value: torch.Tensor,
    world_size: int,
    same: Callable[[torch.Tensor, torch.Tensor], bool],
) -> str:
    """The ranks' blocks in another order, along the first or the last dimension."""
    for dim, word in ((0, "rows"), (expected.ndim - 1, "columns")):
        if expected.shape[dim] % world_size or expected.shape[dim] < world_size:
            continue
        wanted, got = expected.chunk(world_size, dim), value.chunk(world_size, dim)
        order = [next((j for j, block in enumerate(wanted) if same(block, part)), None) for part in got]
        if None not in order and order != list(range(world_size)):
            name = "elements" if expected.ndim == 1 else word
            return f"the blocks of {name} by rank stand in the order {', '.join(map(str, order))}"
    return ""


def _rolled(expected: torch.Tensor, is_it: Callable[[torch.Tensor], bool]) -> str:
    for dim, word in ((0, "row"), (expected.ndim - 1, "column")):
        for step in (1, -1):
            if expected.shape[dim] > 2 and is_it(expected.roll(step, dim)):
                name = "element" if expected.ndim == 1 else word
                return f"shifted by one {name} {'down' if step > 0 else 'up'}"
    return ""


def _same(problem: Problem, case: Case, leaf: Leaf, hypothesis: torch.Tensor, value: torch.Tensor) -> bool:
    """True if the value is what the hypothesis says, on the scale of the expected result."""
    rule = Close() if hypothesis.is_floating_point() else leaf.rule
    return compare(replace(leaf, value=hypothesis, rule=rule), value, problem.tolerance(case.dtype)).passed


# What the oracle says for changed inputs.


def missing_share(problem: Problem, case: Case, arguments: list[Args], checks: Sequence[RankCheck]) -> dict[int, str]:
    """For every failed rank whose outputs are just right but for one rank's share: what is wrong with which share.

    Tries the oracle with the floats of one rank after the other set to zero or doubled, and with all but the rank's
    own set to zero.
    """
    found: dict[int, str] = {}
    failed = [check for check in checks if check.refused and not check.structure]
    for rank, words, changed in _hypotheses(problem, arguments, [check.rank for check in failed]):
        expected = _oracle(problem, case, changed)
        for check in failed if expected else ():
            if check.rank not in found and rank in (None, check.rank):
                assert expected is not None
                if _agrees(problem, case, check, expected[check.rank]):
                    found[check.rank] = words
        if len(found) == len(failed):
            break
    return found


def mixed_calls(problem: Problem, wrong: TrialResult, before: Trial | None, after: Trial | None) -> str:
    """Whose data of a neighbouring call explain the wrong elements of a call; "" if none do.

    Every element may have seen another mixture: ranks overwrite their parts one after the other.
    """
    trial = wrong.trial
    failed = [check for check in wrong.checks if check.refused and not check.structure]
    deadline = time.monotonic() + ORACLE_SECONDS
    for neighbour, when, what in (
        (after, "the next call", "overwritten before all peers have read it"),
        (before, "the call before", "read before it has been written for this call"),
    ):
        if neighbour is None or neighbour.case.sizes != trial.case.sizes:
            continue
        explained = [_Explained(check) for check in failed]
        best: tuple[int, ...] = ()
        most = 0
        for ranks in _groups(len(trial.arguments)):
            mixed = [
                _floats_of(own, neighbour.arguments[rank]) if rank in ranks else own
                for rank, own in enumerate(trial.arguments)
            ]
            expected = _oracle(problem, trial.case, mixed)
            found = sum(part.by(problem, trial.case, expected[part.rank]) for part in explained) if expected else 0
            best, most = (ranks, found) if found > most else (best, most)
            if time.monotonic() > deadline:
                break
        if explained and all(part.share > MIXED_SHARE for part in explained):
            who = f"rank {best[0]}'s data" if len(best) == 1 else f"data of ranks {', '.join(map(str, best))}"
            return f"{who} in it is that of {when}: it was {what}"
    return ""


def _groups(world_size: int) -> Iterator[tuple[int, ...]]:
    """Whose data may be another call's: one rank, several, and not all (that is another call's result)."""
    sizes = range(1, world_size) if world_size <= MOST_RANKS_MIXED else (1, world_size - 1)
    for size in sizes:
        yield from itertools.combinations(range(world_size), size)


class _Explained:
    """The wrong elements of a rank, and which of them some hypothesis gives."""

    def __init__(self, check: RankCheck) -> None:
        self.rank = check.rank
        self.check = check
        self.found: dict[str, torch.Tensor] = {}

    def by(self, problem: Problem, case: Case, expected: Expected) -> int:
        """How many wrong elements the hypothesis gives; they count as explained from now on."""
        wanted = dict(_by_path(expected.output))
        count = 0
        for pair, value, comparison in self.check.refused:
            leaf = wanted.get(pair.path)
            if leaf is None or comparison.bad is None or leaf.value.shape != value.shape:
                continue
            rule = Close() if leaf.value.is_floating_point() else leaf.rule
            other = compare(replace(leaf, rule=rule), value, problem.tolerance(case.dtype)).bad
            if other is not None:
                right = comparison.bad & ~other
                self.found[pair.path] = self.found.get(pair.path, right) | right
                count += int(right.sum())
        return count

    @property
    def share(self) -> float:
        """Share of the wrong elements that are explained."""
        wrong = sum(int(c.bad.sum()) for _, _, c in self.check.refused if c.bad is not None)
        return sum(int(mask.sum()) for mask in self.found.values()) / wrong if wrong else 0.0


def _floats_of(mine: Args, other: Args) -> Args:
    """The arguments with the other call's numbers where only numbers differ."""
    return {
        name: other[name]
        if isinstance(value, torch.Tensor) and value.is_floating_point() and value.shape == other[name].shape
        else value
        for name, value in mine.items()
    }


def _oracle(problem: Problem, case: Case, arguments: list[Args]) -> list[Expected] | None:
    """The oracle for inputs that the problem may not be made for; None where the mathematics does not allow them."""
    try:
        return problem.oracle(case, arguments)
    except (ArithmeticError, RuntimeError, ValueError, IndexError):
        return None


def _hypotheses(
    problem: Problem, arguments: list[Args], failed: list[int]
) -> Iterator[tuple[int | None, str, list[Args]]]:
    """Whom it is about (None: anybody), in words, and the inputs that would give it; only so many as time allows."""
    blank = problem.blank or _blank
    world = range(len(arguments))
    deadline = time.monotonic() + ORACLE_SECONDS
    for missing in world:
        text = f"exactly rank {missing}'s share missing"
        yield None, text, [blank(a) if rank == missing else a for rank, a in enumerate(arguments)]
    for own in failed if len(arguments) > 2 else ():
        if time.monotonic() > deadline:
            return
        text = "only this rank's own share present"
        yield own, text, [a if rank == own else blank(a) for rank, a in enumerate(arguments)]
    for twice in world if problem.linear else ():
        if time.monotonic() > deadline:
            return
        text = f"rank {twice}'s share counted twice"
        yield None, text, [_doubled(problem, a) if rank == twice else a for rank, a in enumerate(arguments)]


def _blank(arguments: Args) -> Args:
    def zeroed(value: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(value) if value.is_floating_point() or value.is_complex() else value

    return trees.map_args(arguments, zeroed)


def _doubled(problem: Problem, arguments: Args) -> Args:
    return {name: 2 * value if name in problem.linear else value for name, value in arguments.items()}


def _agrees(problem: Problem, case: Case, check: RankCheck, expected: Expected) -> bool:
    """True if every refused tensor of the rank is what the hypothesis gives."""
    wanted = dict(_by_path(expected.output))
    for pair, value, _ in check.refused:
        leaf = wanted.get(pair.path)
        if leaf is None or leaf.value.shape != pair.leaf.value.shape:
            return False
        # Judged on the scale of the true result: with a share missing its own may be much smaller.
        merged = replace(leaf, rule=Close()) if leaf.value.is_floating_point() else leaf
        if not compare(merged, value, problem.tolerance(case.dtype)).passed:
            return False
    return bool(check.refused)


def _by_path(expected: Any, path: str = "output") -> Iterator[tuple[str, Leaf]]:
    """Every expected tensor with its path as in ``judge.structure``."""
    if isinstance(expected, Leaf):
        yield path, expected
    elif isinstance(expected, dict):
        for key, item in expected.items():
            yield from _by_path(item, f"{path}[{key!r}]")
    elif isinstance(expected, list | tuple):
        for index, item in enumerate(expected):
            yield from _by_path(item, f"{path}[{index}]")
