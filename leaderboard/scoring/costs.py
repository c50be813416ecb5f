"""What an agent had spent by each of its steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import TypeVar

Cost = TypeVar("Cost", Decimal, int)


def running_total(steps: Iterable[Sequence[Cost | None]]) -> list[Cost | None]:
    """Cost of all files up to each step: c_1 + … + c_s, exact; dollars as ``Decimal``, tokens as ``int``.

    ``steps``: in their order, the cost of each file of the step; None where it was not given. From the first step on
    that lacks one, the total is not known and None: a sum over the rest would look like a smaller bill.
    """
    total: Cost | None = None
    known = True
    found: list[Cost | None] = []
    for costs in steps:
        for cost in costs:
            known = known and cost is not None
            if cost is not None:
                total = cost if total is None else total + cost
        found.append(total if known else None)
    return found
