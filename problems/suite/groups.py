"""Process groups of draws that split the ranks, and computations group by group."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from problems.suite.base import Args, Case, Group

T = TypeVar("T")


def even_and_odd(world_size: int) -> Group:
    """Two groups, the even ranks and the odd ranks, so that ranks in the group and in the world differ."""
    return Group((tuple(range(0, world_size, 2)), tuple(range(1, world_size, 2))))


def contiguous(world_size: int, size: int) -> Group:
    """Groups of ``size`` neighbouring ranks: {0 .. size-1}, {size ..}, ..."""
    return Group(tuple(tuple(range(first, first + size)) for first in range(0, world_size, size)))


def strided(world_size: int, stride: int) -> Group:
    """``stride`` groups of ranks that are ``stride`` apart: {0, stride, 2 stride, ...}, {1, 1 + stride, ...}, ..."""
    return Group(tuple(tuple(range(first, world_size, stride)) for first in range(stride)))


def members(group: Group | None, world_size: int) -> tuple[tuple[int, ...], ...]:
    """The parts into which a group argument cuts the ranks; None means the world group."""
    return group.partition if group is not None else (tuple(range(world_size)),)


def by_group(args: list[Args], compute: Callable[[list[Args]], list[T]], *, name: str = "group") -> list[T]:
    """``compute`` on the arguments of the members of each group; the results in the order of the world's ranks.

    ``name`` is the argument that holds the group; None there means the world group.
    """
    results: dict[int, T] = {}
    for part in members(args[0][name], len(args)):
        results |= zip(part, compute([args[rank] for rank in part]), strict=True)
    return [results[rank] for rank in range(len(args))]


def lacks_subgroups(case: Case) -> bool:
    """For ``skip_draw``: True for the draw "subgroups" where even and odd ranks would not be groups of one size > 1."""
    return case.draw == "subgroups" and (case.world_size < 4 or case.world_size % 2 == 1)
