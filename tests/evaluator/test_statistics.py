"""The statistics of the comparison: against known values, and that looking early can only make the verdict milder."""

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaluator.contract import Decision
from evaluator.judge.statistics import (
    BLOCK_RULES,
    LOOK_CONFIDENCE,
    LOOKS,
    SHOWN_CONFIDENCE,
    Look,
    incomplete_beta,
    median,
    replay,
    t_cdf,
    t_quantile,
    undisturbed,
)

SECONDS = st.floats(min_value=1e-6, max_value=100, allow_nan=False)
RATIOS = st.lists(st.floats(min_value=-2, max_value=2, allow_nan=False), min_size=2, max_size=40)


@pytest.mark.parametrize(
    ("probability", "degrees", "value"),
    [
        (0.975, 1, 12.7062047362),
        (0.975, 4, 2.7764451052),
        (0.975, 19, 2.0930240544),
        (0.995, 1, 63.6567411629),
        (0.9975, 4, 5.5975683664),
        (0.9975, 9, 3.6896623923),
        (0.9975, 19, 3.1737245308),
        (0.75, 30, 0.6827556884),
    ],
)
def test_t_quantiles_are_those_of_the_tables(probability: float, degrees: int, value: float) -> None:
    assert t_quantile(probability, degrees) == pytest.approx(value, rel=1e-8)
    assert t_quantile(1 - probability, degrees) == pytest.approx(-value, rel=1e-8)


@given(st.floats(min_value=0.001, max_value=0.999), st.integers(min_value=1, max_value=200))
def test_quantile_inverts_the_distribution(probability: float, degrees: int) -> None:
    assert t_cdf(t_quantile(probability, degrees), degrees) == pytest.approx(probability, abs=1e-9)


@given(st.floats(min_value=0.1, max_value=50), st.floats(min_value=0.1, max_value=50), st.floats(0.01, 0.99))
def test_incomplete_beta_is_a_distribution_function(a: float, b: float, x: float) -> None:
    value = incomplete_beta(a, b, x)
    assert -1e-12 <= value <= 1 + 1e-12
    assert value == pytest.approx(1 - incomplete_beta(b, a, 1 - x), abs=1e-9)


@pytest.mark.parametrize(("probability", "degrees"), [(0.0, 3), (1.0, 3), (0.5, 0), (math.nan, 3)])
def test_impossible_quantiles_are_refused(probability: float, degrees: int) -> None:
    with pytest.raises(ValueError, match="no t-quantile"):
        t_quantile(probability, degrees)


@given(st.lists(SECONDS, min_size=1, max_size=60))
def test_value_of_a_block_lies_between_its_fastest_call_and_its_median(samples: list[float]) -> None:
    value = undisturbed(samples)
    assert min(samples) * (1 - 1e-12) <= value <= max(median(samples), min(samples)) * (1 + 1e-12)


@given(st.lists(SECONDS, min_size=8, max_size=60), st.lists(st.floats(1, 100), min_size=1, max_size=5))
def test_disturbed_calls_do_not_move_the_value_of_a_block(samples: list[float], slowdowns: list[float]) -> None:
    """Slowing down calls that are not among the fastest quarter changes nothing."""
    ordered = sorted(samples)
    slowed = [
        s * slowdowns[i % len(slowdowns)] if i >= math.ceil(len(samples) / 4) else s for i, s in enumerate(ordered)
    ]
    assert undisturbed(slowed) == pytest.approx(undisturbed(samples))


def test_on_a_gpu_a_block_with_one_slow_call_in_ten_is_void_and_one_in_thirty_is_not() -> None:
    assert BLOCK_RULES["cuda"].disturbed([1.0] * 9 + [3.5])
    assert not BLOCK_RULES["cuda"].disturbed([1.0] * 29 + [3.5])


def test_on_a_cpu_a_block_is_void_when_its_typical_call_is_three_times_as_slow_as_its_undisturbed_ones() -> None:
    """Single slow calls are none of the fastest quarter and void nothing."""
    assert BLOCK_RULES["cpu"].disturbed([1.0] * 4 + [3.5] * 6)
    assert not BLOCK_RULES["cpu"].disturbed([1.0] * 6 + [3.5] * 4)


def test_the_value_of_a_block_is_its_median_on_a_gpu_and_the_mean_of_its_fastest_quarter_on_a_cpu() -> None:
    samples = [4.0, 1.0, 2.0, 9.0, 8.0, 7.0, 6.0, 3.0]
    assert BLOCK_RULES["cuda"].value(samples) == 5.0
    assert BLOCK_RULES["cpu"].value(samples) == 1.5


@given(RATIOS)
def test_faster_and_slower_mirror_each_other(ratios: list[float]) -> None:
    mirrored = {Decision.FASTER: Decision.SLOWER, Decision.SLOWER: Decision.FASTER}
    one, other = Look.at(ratios).verdict(1.0), Look.at([-r for r in ratios]).verdict(-1.0)
    assert other == (mirrored.get(one, one) if one else one)


@given(RATIOS)
def test_shown_interval_lies_within_the_decision_interval(ratios: list[float]) -> None:
    look = Look.at(ratios)
    wide, narrow = look.interval(LOOK_CONFIDENCE), look.interval(SHOWN_CONFIDENCE)
    assert wide.low <= narrow.low <= narrow.estimate <= narrow.high <= wide.high


def test_typical_call_must_not_contradict() -> None:
    """Fast in a quarter of the calls and slow in the others is no speedup."""
    look = Look.at([0.5, 0.51, 0.5, 0.49, 0.5])
    assert look.verdict(0.4) is Decision.FASTER
    assert look.verdict(-0.1) is Decision.TIE


def test_needs_two_pairs() -> None:
    with pytest.raises(ValueError, match="two pairs"):
        Look.at([0.1])


def decide(ratios: list[float]) -> tuple[Decision, int]:
    """The rule of the judge on ready log-ratios, of blocks whose medians say the same."""
    return replay(ratios, ratios)


@pytest.mark.parametrize("deviation", [0.01, 0.1, 0.4])
def test_an_unchanged_program_is_hardly_ever_called_faster(deviation: float) -> None:
    """Designed for at most 0.3 %; of 20 000 runs that is 60, and more than 85 would be three deviations above it."""
    random_source = random.Random(20261201)
    runs = [decide([random_source.gauss(0, deviation) for _ in range(LOOKS[-1])]) for _ in range(20_000)]
    assert sum(decision is Decision.FASTER for decision, _ in runs) <= 85
    assert sum(pairs for _, pairs in runs) / len(runs) < 9, "ties must not need all pairs"


@pytest.mark.parametrize("deviation", [0.03, 0.1])
def test_nine_of_ten_effects_of_the_smallest_detectable_size_are_found(deviation: float) -> None:
    """Where the size is what another comparison of five pairs reported, with its own estimate of the noise."""
    random_source = random.Random(7)

    def noise(pairs: int) -> list[float]:
        return [random_source.gauss(0, deviation) for _ in range(pairs)]

    found = 0
    for _ in range(1_500):
        effect = math.log(Look.at(noise(LOOKS[0])).smallest_detectable(LOOKS[-1]))
        found += decide([effect + r for r in noise(LOOKS[-1])])[0] is Decision.FASTER
    assert found > 0.9 * 1_500
