"""Bounds from the cost model, and targets as data."""

import pytest

from evaluator.contract import Bound, Precision
from evaluator.judge.bounds import bound, impossible, utilised
from evaluator.targets import Peaks, cpus_of_ranks, last_level_cache_bytes, target, targets, threads_per_rank
from problems.suite.base import RankCost

PEAKS = Peaks(flops={"bf16": 1e12, "fp32": 1e11}, hbm_bytes_per_second=1e10, link_bytes_per_second=1e9)


def made(**parts: float) -> Bound:
    cost = RankCost({"bf16": parts.get("flops", 0)}, parts.get("hbm", 0), parts.get("wire", 0), 0)
    found = bound([cost], PEAKS)
    assert found is not None
    return found


def test_the_largest_part_is_the_overlap_bound_and_link_comes_on_top_in_the_serial_one() -> None:
    found = made(flops=2e12, hbm=1e10, wire=1.5e9)
    assert found.overlap_seconds == pytest.approx(2.0)
    assert found.serial_seconds == pytest.approx(3.5)
    assert found.limited_by == "compute"
    assert made(hbm=2e10, wire=1e9).limited_by == "memory"
    assert made(wire=1e9).limited_by == "link"


def test_the_slowest_rank_counts() -> None:
    fast, slow = RankCost({}, 1e9, 0, 0), RankCost({}, 3e9, 0, 0)
    found = bound([fast, slow, fast], PEAKS)
    assert found is not None
    assert found.overlap_seconds == pytest.approx(0.3)


def test_in_switch_reduction_lowers_the_floor() -> None:
    """An all-reduce may beat 2 S (W-1)/W; a floor above what the switch can do would accuse honest kernels."""
    found = bound([RankCost({}, 0, 2e9, 2e9, one_way=1e9)], PEAKS)
    assert found is not None
    assert found.overlap_seconds == pytest.approx(1.0)


def test_a_dtype_without_a_peak_counts_with_the_highest_one() -> None:
    found = bound([RankCost({"fp8": 1e12}, 0, 0, 0)], PEAKS)
    assert found is not None
    assert found.overlap_seconds == pytest.approx(1.0)


def test_impossible_begins_two_percent_below_the_bound() -> None:
    found = made(wire=1e9)
    assert not impossible(found, 0.985)
    assert impossible(found, 0.975)
    assert utilised(found, 2.0).utilisation == pytest.approx(0.5)


def test_no_bound_is_claimed_where_peaks_are_unknown() -> None:
    assert bound([RankCost({}, 1, 1, 1)], target("cpu-gloo").peaks) is None


def test_every_ranked_target_has_peaks() -> None:
    assert {name for name, entry in targets().items() if entry.ranked and not entry.peaks.trustworthy} == set()


def test_targets_refuse_what_they_cannot_run() -> None:
    cpu = target("cpu-gloo")
    for world_size in (2, 4):
        assert cpu.refusal(world_size=world_size, precision=Precision.FP32) == ""
    assert "2 or 4 ranks, not 3" in cpu.refusal(world_size=3, precision=Precision.FP32)
    assert "fp32, not bf16" in cpu.refusal(world_size=4, precision=Precision.BF16)
    with pytest.raises(KeyError, match="There is no target 'abacus'; there are h100x4"):
        target("abacus")


@pytest.mark.parametrize(
    ("cpus", "expected"), [({0, 1}, [[0], [1], [0], [1]]), ({4, 5, 6, 7, 9}, [[4], [5], [6], [7]])]
)
def test_ranks_share_the_cpus_evenly(
    monkeypatch: pytest.MonkeyPatch, cpus: set[int], expected: list[list[int]]
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: cpus)
    assert cpus_of_ranks(4) == expected
    assert threads_per_rank(4) == 1
    assert threads_per_rank(2) == len(cpus) // 2


def test_the_cache_is_that_of_the_target_or_of_this_machine() -> None:
    assert last_level_cache_bytes(target("h100x8")) == 50 * 1024**2
    assert last_level_cache_bytes(target("cpu-gloo")) > 100_000


@pytest.mark.sandbox
def test_a_time_below_the_bound_is_held_in_the_trial_where_it_appears(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference on a target whose hardware, by its peaks, could not be so fast."""
    from uuid import uuid4

    from evaluator.contract import Job
    from evaluator.judge import evaluate
    from problems.suite import registry
    from problems.suite.reference import reference_source

    slow = target("cpu-gloo").model_copy(update={"peaks": PEAKS.model_copy(update={"hbm_bytes_per_second": 1e4})})
    monkeypatch.setitem(targets(), "cpu-gloo", slow)
    source = reference_source(registry.find(1))
    job = Job(attempt_id=uuid4(), problem_id=1, target="cpu-gloo", world_size=2, file_name="kernel.py", source=source)
    report = evaluate(job, with_timing=False)
    assert report.code == "impossible_time", report.message
    assert "memory of 4 ranks on the CPU, gloo needs" in report.message
    [case] = report.cases
    assert case.passed
    assert case.bound is not None
    assert case.seconds is not None
    assert case.seconds * 1.02 < case.bound.overlap_seconds <= case.bound.serial_seconds
