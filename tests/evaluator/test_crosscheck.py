"""The ranks' clocks against the judge's: what lies, by how much it must lie to be caught, and what must pass."""

import random
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.judge.crosscheck import Batch, calibrate
from evaluator.judge.statistics import median, undisturbed

WAY = 200e-6  # there and back, as on a busy two-core machine


def block(true_seconds: float, *, lie: float = 1.0, seed: int = 0, jitter: float = 5e-6, calls: int = 40) -> Batch:
    """A block of calls that really take ``true_seconds`` and whose timer divides by ``lie``."""
    chance = random.Random(seed)
    judged = [true_seconds + WAY + abs(chance.gauss(0, jitter)) for _ in range(calls)]
    return Batch(judged, [(seconds - WAY) / lie for seconds in judged])


def band(reference_seconds: float, value=median):  # type: ignore[no-untyped-def]
    return calibrate(block(0.0), [block(reference_seconds, seed=seed) for seed in range(5)], value)


@pytest.mark.parametrize("lie", [5, 10, 50])
@pytest.mark.parametrize("true_seconds", [100e-6, 1e-3, 20e-3])
@pytest.mark.parametrize("value", [median, undisturbed])
def test_a_timer_that_lies_five_to_fifty_times_is_caught(lie, true_seconds, value):  # type: ignore[no-untyped-def]
    """Whether the file is as fast as the reference, twice as fast or twice as slow."""
    found = band(true_seconds, value)
    for speed in (0.5, 1.0, 2.0):
        assert not found.holds(block(true_seconds * speed, lie=lie).difference(value))


@given(st.floats(0.2, 5.0), st.integers(1, 1_000))
def test_an_honest_timer_passes_however_fast_its_file_is(speed: float, seed: int) -> None:
    assert band(1e-3).holds(block(1e-3 * speed, seed=seed).difference(median))


def test_a_timer_that_counts_too_much_is_found_as_well() -> None:
    """Work that goes on behind the timer's back makes the judge's time the longer; a clock that races, the shorter."""
    assert not band(1e-3).holds(block(1e-3, lie=0.25).difference(median))


def test_lies_in_half_of_the_calls_move_the_median_and_are_found() -> None:
    honest, lying = block(1e-3, seed=1, calls=19), block(1e-3, lie=10, seed=2, calls=21)
    mixed = Batch([*honest.judged, *lying.judged], [*honest.claimed, *lying.claimed])
    assert not band(1e-3).holds(mixed.difference(median))


def test_the_smallest_lie_that_is_caught_is_the_border() -> None:
    found = band(1e-3)
    usual = block(1e-3).difference(median)
    factor = found.smallest_lie(1e-3, usual)
    assert 1 < factor < 2
    assert found.holds(block(1e-3, lie=1 + 0.9 * (factor - 1)).difference(median))
    assert not found.holds(block(1e-3, lie=1 + 1.2 * (factor - 1)).difference(median))
    assert found.smallest_lie(1e-6, usual) == float("inf"), "a call shorter than the band is wide may say anything"


def test_noise_of_the_reference_widens_the_band() -> None:
    noisy = calibrate(block(0.0), [block(1e-3, seed=s, jitter=300e-6) for s in range(5)], undisturbed)
    calm = band(1e-3, undisturbed)
    assert noisy.high - noisy.low > calm.high - calm.low


def test_no_band_without_the_reference() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        calibrate(block(0.0), [], median)


LYING = """
import sys
import time
import torch.distributed as dist

_truth = time.perf_counter
_clocks = [time.perf_counter, time.monotonic, time.time, time.process_time]
for _module in [time, *(_m for _n, _m in sys.modules.items() if _n.startswith("runner."))]:
    for _name, _value in list(vars(_module).items()):
        if _value in _clocks:
            setattr(_module, _name, lambda: _truth() / {lie})


def solution(tensor):
    import threading

    threading.Event().wait(0.03)
    result = tensor.clone()
    dist.all_reduce(result)
    return result
"""


@pytest.mark.sandbox
@pytest.mark.parametrize("lie", [5, 50])
def test_patched_clocks_gain_nothing_in_a_real_comparison(lie: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that takes 30 ms longer than the reference and says that it takes a fifth or a fiftieth of it.

    By the judge's own clock, the sample on a CPU, it is slower. Where the ranks' clocks were the sample, the comparison
    would say something else, and the judge's clock does not agree with it.
    """
    from benchmarks.comparing import Bench, Setting
    from evaluator.judge import timing
    from problems.suite.reference import reference_source

    monkeypatch.setattr(timing, "LOOKS", (2,))
    with ExitStack() as stack:
        bench = Bench(Setting(1, 2), stack)
        pilot, noop = bench.pilot()
        bench.reference.submit(reference_source(bench.problem))
        bench.candidate.submit(LYING.format(lie=lie))
        comparison = bench.comparison(pilot, noop, calls=10, source="events")
        measured, _ = comparison.run()
    assert measured.clock is not None
    assert not measured.clock.agrees
    assert measured.clock.candidate > measured.clock.high
    for ours, theirs in zip(comparison.batches[False], comparison.batches[True], strict=True):
        assert undisturbed(theirs.judged) > 0.03 > undisturbed(ours.judged) * 0.5
        assert undisturbed(theirs.claimed) < undisturbed(theirs.judged) / lie * 2
