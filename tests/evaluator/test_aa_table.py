"""The tables of the A/A benchmark: limits of a rate, and that they count what was recorded."""

from __future__ import annotations

import random

import pytest

from benchmarks.aa_table import Row, compact, drift, effects, false_verdicts, limits, noise


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [(0, 300, 0.0, 0.01222), (1, 300, 0.0000844, 0.01844), (9, 10, 0.55498, 0.99747), (10, 10, 0.69150, 1.0)],
)
def test_limits_are_those_of_clopper_and_pearson(hits: int, trials: int, low: float, high: float) -> None:
    assert limits(hits, trials) == pytest.approx((low, high), abs=2e-5)


def row(chance: random.Random, *, effect: float = 1.0, slower: str = "", load: float = 1.0, pairs: int = 5) -> Row:
    """A comparison as ``benchmarks.aa`` writes it, of calls of 1 ms with noise of 3 %."""

    def block(factor: float) -> list[int]:
        return [round(1_000 * factor * load * (1 + abs(chance.gauss(0, 0.03)))) for _ in range(20)]

    recorded = [{"reference": block(effect), "candidate": block(1.0), "reference_first": True} for _ in range(pairs)]
    return {
        "problem": 1,
        "world_size": 2,
        "setting": "1/2",
        "slower": slower,
        "share": effect - 1,
        "decision": "tie",
        "reference_us": 1_000 * load,
        "pairs": recorded,
        "void": [],
    }


def test_tables_count_what_was_recorded() -> None:
    chance = random.Random(1)
    alike = [compact(row(chance)) for _ in range(8)]
    known = [compact(row(chance, effect=1.5, slower="reference")) for _ in range(3)]
    undecided = compact({**row(chance), "decision": "none", "pairs": []})
    assert "| 1/2 | 9 | 1.00 to 1.00 ms |" in noise([*alike, undecided])
    verdicts = false_verdicts([*alike, undecided], 200)
    assert "| measured | 9 | 0 | 0 | 8 | 1 | 0.00% (0.00% to 36.94%) |" in verdicts
    assert "| resampled from their pairs | 200 |" in verdicts
    assert "| reference slowed by 50% to 50% | 3 | 3 | 0 | 0 | 0 | 100% (29% to 100%) |" in effects(
        [*alike, *known], 50
    )


def test_reference_times_that_are_kept_mislead_when_the_machine_drifts() -> None:
    chance = random.Random(2)
    calm, busy = [[compact(row(chance, load=load)) for _ in range(2)] for load in (1.0, 1.3)]
    assert "33% of 12 combinations of a program with itself come out faster and 33% slower" in drift([*calm, *busy])
