"""How many calls a block has, and the parts of the schedule that need no sandbox."""

from itertools import pairwise

import pytest

from evaluator.judge.timing import FEWEST_CALLS, MAX_CALLS, MIN_CALLS, calls_per_block
from evaluator.judge.trials import Ring

BUDGET = 600.0


@pytest.mark.parametrize(
    ("reference", "candidate", "input_bytes", "calls"),
    [
        (0.001, 0.001, 1_000, MAX_CALLS),
        (0.020, 0.020, 1_000, 30),
        (0.5, 0.5, 1_000, MIN_CALLS),
        (0.001, 0.001, 20 * 1024**2, 25),
        (0.001, 5.0, 1_000, 7),
        (0.001, 60.0, 1_000, FEWEST_CALLS),
    ],
)
def test_calls_follow_the_reference_unless_the_candidate_is_hopelessly_slow(
    reference: float, candidate: float, input_bytes: int, calls: int
) -> None:
    assert calls_per_block(reference, candidate, input_bytes, BUDGET) == calls


def test_a_candidate_cannot_gain_calls_by_being_slow_or_fast_in_the_trials() -> None:
    """Whatever it does below two seconds a call, the number stays what the reference's time makes it."""
    counts = {calls_per_block(0.004, seconds, 1_000, BUDGET) for seconds in (1e-9, 1e-4, 0.004, 0.1, 0.9)}
    assert counts == {MAX_CALLS}


def test_slots_rotate_over_the_whole_region_without_overlap() -> None:
    ring = Ring(10 * 4096)
    starts = [ring.place(4000) for _ in range(25)]
    assert starts[:3] == [0, 4032, 8064]
    assert len(set(starts)) == 10
    assert all(start + 4000 <= ring.size for start in starts)
    assert all(abs(a - b) >= 4000 for a, b in pairwise(starts))


def test_a_slot_larger_than_the_region_is_our_mistake() -> None:
    with pytest.raises(ValueError, match="slot"):
        Ring(100).place(101)
