"""Oracles and comparisons with them on a GPU: the same float64 arithmetic, where shapes would take a CPU seconds.

Only the judge's process does this, while the job stands still; what comes back lies in the host's memory. An oracle
that cannot run there (or has a rule of validity, which looks at the host's memory) is asked on the CPU as before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from problems.suite import trees
from problems.suite.base import Args, Case, Expected, Leaf, Problem, Tolerance, Valid
from problems.suite.compare import Comparison, compare

log = logging.getLogger(__name__)

REFUSALS = (RuntimeError, NotImplementedError, TypeError)
"""What torch raises for tensors on two devices, for memory that does not suffice, and for operations it lacks there."""

WORTH_THE_WAY = 65_536
"""Elements of a tensor from which on it is compared on the device."""

Oracle = Callable[[Case, list[Args]], list[Expected]]


def with_oracle_on(problem: Problem, device: str) -> Problem:
    """The problem, its oracle computed on ``device`` where that can be."""
    if device == "cpu":
        return problem
    return replace(problem, oracle=OnDevice(problem.id, problem.oracle, torch.device(device)))


@dataclass
class OnDevice:
    """One problem's oracle on a device. ``refusal``: why it is asked on the CPU, once that is known."""

    problem_id: int
    oracle: Oracle
    device: torch.device
    refusal: str = field(default="", init=False)

    def __call__(self, case: Case, arguments: list[Args]) -> list[Expected]:
        if not self.refusal:
            try:
                return self._there(case, arguments)
            except REFUSALS as error:
                self.refusal = f"{type(error).__name__}: {error}"[:300]
                log.warning("the oracle of problem %d runs on the CPU: %s", self.problem_id, self.refusal)
        return self.oracle(case, arguments)

    def _there(self, case: Case, arguments: list[Args]) -> list[Expected]:
        moved: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # what ranks share is moved once; kept, so ids stay

        def move(tensor: torch.Tensor) -> torch.Tensor:
            if id(tensor) not in moved:
                there = tensor.detach().to(self.device)
                moved[id(tensor)] = tensor, there.requires_grad_(tensor.requires_grad)
            return moved[id(tensor)][1]

        try:
            with self.device:  # what the oracle itself makes lies there too
                expected = self.oracle(case, [trees.map_args(own, move) for own in arguments])
            return [Expected(_fetched(one.output), _fetched(one.mutated)) for one in expected]
        finally:
            moved.clear()
            if self.device.type == "cuda":
                torch.cuda.empty_cache()  # the ranks need the memory


def compare_there(problem: Problem, leaf: Leaf, value: torch.Tensor, tolerance: Tolerance) -> Comparison:
    """``compare`` on the device where the problem's oracle is computed, where that is worth the way."""
    there = problem.oracle
    if not isinstance(there, OnDevice) or isinstance(leaf.rule, Valid) or leaf.value.numel() < WORTH_THE_WAY:
        return compare(leaf, value, tolerance)
    try:
        moved = replace(leaf, value=leaf.value.to(there.device))
        found = compare(moved, value.to(there.device), tolerance)
        # Where everything is right nobody asks which elements are not.
        return replace(found, bad=None if found.passed or found.bad is None else found.bad.cpu())
    except REFUSALS as error:
        log.warning("compared on the CPU: %s", error)
        return compare(leaf, value, tolerance)


def _fetched(tree: Any) -> Any:
    return trees.map_leaves(tree, _to_host)


def _to_host(leaf: Leaf) -> Leaf:
    """Raises TypeError for a rule that holds tensors of its own."""
    if isinstance(leaf.rule, Valid):
        raise TypeError("a rule of validity looks at tensors of the host")
    return replace(leaf, value=leaf.value.cpu())
