"""How many calls a block has, which pairs are void, and the parts of the schedule that need no sandbox."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from itertools import chain, pairwise, repeat
from types import SimpleNamespace
from typing import Any

import pytest

from evaluator.contract import Decision, Limits
from evaluator.gpus import Gpu
from evaluator.judge import throughput
from evaluator.judge.crosscheck import Batch
from evaluator.judge.evaluation import CACHE_MULTIPLE, MAX_REGIONS_BYTES, rotated_bytes
from evaluator.judge.launch import Call
from evaluator.judge.statistics import BLOCK_RULES, replay
from evaluator.judge.timing import (
    FEWEST_CALLS,
    MAX_CALLS,
    MIN_CALLS,
    Comparison,
    Side,
    calls_per_block,
)
from evaluator.judge.trials import Ring
from evaluator.judge.voids import MAX_VOID_PAIRS, Disturbed

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


@pytest.mark.parametrize("world_size", [1, 2, 4, 8])
def test_addresses_come_again_only_after_three_times_the_last_level_cache(world_size: int) -> None:
    cache, slot = 32 * 1024**2, 262_144
    ring = Ring(rotated_bytes(cache, slot, world_size))
    starts = [ring.place(slot) for _ in range(2 * ring.size // slot)]
    period = starts.index(starts[0], 1)
    assert (period + 1) * slot * world_size > CACHE_MULTIPLE * cache


def test_regions_hold_two_of_the_largest_sets_and_no_more_than_is_sane() -> None:
    assert rotated_bytes(10, 1_000, 4) == 2_000
    assert rotated_bytes(10**12, 1_000, 4) == MAX_REGIONS_BYTES // 4


CALM, UNEVEN = [1.0] * 20, [1.0] * 6 + [4.0] * 14
Blocks = tuple[list[float], list[float]]


def comparison(pairs: Iterable[Blocks], monkeypatch: pytest.MonkeyPatch, **more: Any) -> Comparison:
    """A comparison whose pairs are given: times of the reference's and of the candidate's calls."""
    nothing: Any = None
    made = Comparison(
        problem=nothing,
        case=SimpleNamespace(world_size=2),  # type: ignore[arg-type]
        reference=nothing,
        candidate=nothing,
        partitions=[],
        source_bytes=64,
        target_bytes=64,
        names=[],
        calls=20,
        limits=Limits(),
        budget=1_000.0,
        noop=Batch([1e-4], [0.0]),
        progress=lambda done, total, note: None,
        verified=nothing,
        **more,
    )
    waiting = iter(pairs)
    monkeypatch.setattr(
        made, "_pair", lambda: [side(*entry) for entry in zip(("reference", "candidate"), next(waiting), strict=True)]
    )
    return made


def side(name: str, times: list[float], claimed: float = 1.0) -> Side:
    """An arm in a pair whose calls took so long, and who says that they took ``claimed`` of that."""
    launch: Any = SimpleNamespace(arm=SimpleNamespace(name=name))
    return Side(launch, Ring(64), [Call(seconds, (), seconds * claimed, 0.01) for seconds in times])


def test_void_pairs_are_repeated_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    uneven: list[Blocks] = [(UNEVEN, CALM), (CALM, UNEVEN), (UNEVEN, UNEVEN)]
    made = comparison(chain(uneven, repeat((CALM, CALM))), monkeypatch)
    measured, decision = made.run()
    assert decision is Decision.TIE
    assert measured.void_blocks == len(made.voided) == 3
    assert [pair.reference for pair in made.pairs] == [tuple(CALM)] * 5


def test_a_disturbed_machine_ends_the_comparison_without_a_decision(monkeypatch: pytest.MonkeyPatch) -> None:
    made = comparison(repeat((UNEVEN, CALM)), monkeypatch)
    with pytest.raises(Disturbed, match=r"in 6 of 6 pairs of blocks typical calls took more than three times"):
        made.run()
    assert len(made.voided) == MAX_VOID_PAIRS + 1


def gpu(*reasons: str, clock: int = 1_980) -> Gpu:
    return Gpu(0, "H200", "580", "9.0", 10, 1, clock, 1_980, 40, reasons)


def test_a_gpu_that_is_slowed_down_voids_the_pair_and_its_power_cap_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = chain([gpu(), gpu("hardware thermal slowdown")], repeat(gpu("power cap")))
    made = comparison(repeat((CALM, CALM)), monkeypatch, states=lambda: (next(looks),))
    measured, _ = made.run()
    assert measured.void_blocks == 1
    [power] = [warning for warning in measured.warnings if "slowed" in warning]
    assert power.startswith("GPU 0 was slowed down in 11 of 12 looks: hardware thermal slowdown, power cap")


def test_gpus_that_are_always_slowed_down_end_the_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    made = comparison(repeat((CALM, CALM)), monkeypatch, states=lambda: (gpu("power brake"),))
    with pytest.raises(Disturbed, match=r"in 6 of 6 pairs of blocks GPU 0 was slowed down \(power brake\)"):
        made.run()


def test_an_uneven_file_on_a_calm_machine_gets_no_fresh_pairs_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fast in a third of its calls and slow in the others: its pairs count, and it is not faster."""
    lucky = [0.5] * 6 + [4.0] * 14
    made = comparison(repeat((CALM, lucky)), monkeypatch)
    measured, decision = made.run()
    assert measured.void_blocks == MAX_VOID_PAIRS
    assert decision is Decision.TIE


@pytest.mark.parametrize("deviation", [0.005, 0.05])
@pytest.mark.parametrize("effect", [-0.2, -0.03, 0.0, 0.02, 0.1])
def test_a_comparison_decides_as_the_rule_does_on_ready_pairs(
    effect: float, deviation: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the benchmark of the error rates replays is what the judge does."""
    chance = random.Random(3)
    ratios = [effect + chance.gauss(0, deviation) for _ in range(20)]
    made = comparison([(CALM, [math.exp(-ratio)] * 20) for ratio in ratios], monkeypatch)
    measured, decision = made.run()
    assert (decision, len(measured.pairs)) == replay(ratios, ratios)


def test_where_events_are_the_sample_the_ranks_times_count_and_the_clocks_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def pairs() -> Iterable[list[Side]]:
        while True:
            yield [side("reference", CALM), side("candidate", CALM, claimed=0.1)]

    made = comparison([], monkeypatch, source="events", rule=BLOCK_RULES["cuda"])
    waiting = iter(pairs())
    monkeypatch.setattr(made, "_pair", lambda: next(waiting))
    measured, decision = made.run()
    assert decision is Decision.FASTER, "what the lying clock would gain"
    assert measured.clock is not None
    assert measured.clock.source == "events"
    assert not measured.clock.agrees
    assert measured.reference_skew_seconds == 0.01


def test_trains_follow_the_references_time_and_have_no_known_end() -> None:
    lengths = set()
    for _ in range(200):
        plan = throughput.plan(0.001, 8, reusable=True)
        assert plan is not None
        assert plan.sets == 8
        lengths.add(plan.calls)
    assert len(lengths) > 4
    assert 16 <= min(lengths) <= max(lengths) <= 24


def test_a_set_that_a_call_changes_is_given_once() -> None:
    plan = throughput.plan(0.001, 8, reusable=False)
    assert plan is not None
    assert plan.calls == plan.sets == 8
    assert throughput.plan(0.001, 2, reusable=False) is None, "three calls are the shortest train"
    assert throughput.plan(0.001, 0, reusable=True) is None


def test_slow_calls_make_short_trains() -> None:
    plan = throughput.plan(2.0, 8, reusable=True)
    assert plan is not None
    assert plan.calls == throughput.MIN_CALLS


def test_sets_of_a_train_do_not_overlap() -> None:
    sizes = [1_000, 900, 1_000, 1_000, 1_000, 1_000]
    ring = Ring(4_500)
    for _ in range(10):
        count = throughput.sets_that_fit(ring.size, sizes)
        assert count == 3
        starts = sorted((ring.place(size), size) for size in sizes[:count])
        assert all(start + size <= following for (start, size), (following, _) in pairwise(starts))


def test_the_throughput_is_a_mean_over_all_calls() -> None:
    assert throughput.summary([]) is None
    found = throughput.summary([throughput.Train(10, 70, 1.0, 0.5), throughput.Train(30, 60, 2.0, 1.5)])
    assert found is not None
    assert (found.reference_seconds, found.candidate_seconds) == (0.075, 0.05)
    assert (found.calls, found.warmup_calls, found.verified_calls) == (40, 60, 2)
