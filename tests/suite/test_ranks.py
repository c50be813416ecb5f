"""A call that fails, dies or hangs is told apart, holds up nobody, and the next call works."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import torch

from problems.suite.ranks import Ranks

FAILS_ON_ONE = """
import torch.distributed as dist
def solution(x):
    if dist.get_rank() == 1:
        raise ValueError("out of ideas")
    dist.all_reduce(x)
"""
DIES_ON_ONE = """
import os
import torch.distributed as dist
def solution(x):
    if dist.get_rank() == 0:
        os._exit(3)
    dist.all_reduce(x)
"""
HANGS_ON_ONE = """
import time
import torch.distributed as dist
def solution(x):
    if dist.get_rank() == 1:
        time.sleep(600)
    dist.all_reduce(x)
"""
ADDS_IN_PLACE = """
import torch.distributed as dist
def solution(x):
    dist.all_reduce(x)
    return [x * 2]
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[Ranks]:
    with Ranks(2, call_seconds=4) as ranks:
        yield ranks


def _works(pair: Ranks) -> bool:
    given = [{"x": torch.ones(3)}, {"x": torch.full((3,), 2.0)}]
    results = pair.call(ADDS_IN_PLACE, given)
    assert [r.error for r in results] == ["", ""]
    assert torch.equal(given[0]["x"], torch.ones(3)), "the caller's tensor was changed"
    assert all(torch.equal(r.args["x"], torch.full((3,), 3.0)) for r in results)
    return all(torch.equal(r.output[0], torch.full((3,), 6.0)) for r in results)


def test_outputs_and_changed_arguments_come_back(pair: Ranks) -> None:
    assert _works(pair)


def test_failure_of_one_rank_is_told_from_the_ones_that_waited(pair: Ranks) -> None:
    results = pair.call(FAILS_ON_ONE, [{"x": torch.ones(1)}] * 2)
    assert results[0].error == "stopped, because rank 1 failed"
    assert "ValueError: out of ideas" in results[1].error
    assert _works(pair)


def test_death_of_a_rank_is_reported(pair: Ranks) -> None:
    results = pair.call(DIES_ON_ONE, [{"x": torch.ones(1)}] * 2)
    assert results[0].error == "the process of this rank died during the call"
    assert results[1].error
    assert _works(pair)


def test_hanging_call_ends_at_its_limit(pair: Ranks) -> None:
    started = time.monotonic()
    results = pair.call(HANGS_ON_ONE, [{"x": torch.ones(1)}] * 2)
    assert {r.error for r in results} == {"no answer within 4 s"}
    assert time.monotonic() - started < 20
    assert _works(pair)


def test_wrong_number_of_ranks_is_refused(pair: Ranks) -> None:
    with pytest.raises(ValueError, match="arguments for 3 ranks, but the group has 2"):
        pair.call(ADDS_IN_PLACE, [{"x": torch.ones(1)}] * 3)
