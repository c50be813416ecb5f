"""Measured rates: what is written, where they count, and that they never accuse anybody."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from evaluator import targets
from evaluator.cli import main
from evaluator.judge.bounds import bound, impossible
from evaluator.peaks import Measured, write
from evaluator.targets import Peaks
from problems.suite.base import RankCost

PEAKS = Peaks(
    flops={"fp32": 4e10},
    hbm_bytes_per_second=8e9,
    link_bytes_per_second=2e9,
    last_level_cache_bytes=1,
    origin="measured",
)


def measured(name: str) -> Measured:
    return Measured(targets.target(name), PEAKS, {"copy": 8e9, "gloo ring": 3e8}, "host", "2026-01-01", "2.13")


@pytest.fixture
def forget_targets() -> Iterator[None]:
    targets.targets.cache_clear()
    yield
    targets.targets.cache_clear()


def test_the_file_keeps_the_entries_of_other_targets(tmp_path: Path) -> None:
    file = tmp_path / "peaks.json"
    write(measured("cpu-gloo"), file)
    write(measured("gpu-emulated"), file)
    assert set(json.loads(file.read_text())) == {"cpu-gloo", "gpu-emulated"}
    file.write_text("[]")
    with pytest.raises(ValueError, match="does not hold measured peaks"):
        write(measured("cpu-gloo"), file)


@pytest.mark.usefixtures("forget_targets")
def test_measured_rates_count_where_no_vendor_gives_peaks_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("cpu-gloo", "h100x8"):
        write(measured(name), tmp_path / "peaks.json")
    targets.targets.cache_clear()
    monkeypatch.setenv(targets.MEASURED_PEAKS, str(tmp_path / "peaks.json"))
    assert targets.target("cpu-gloo").peaks == PEAKS
    assert targets.target("h100x8").peaks.origin == "vendor"


def test_measured_rates_give_a_bound_and_never_an_impossible_time() -> None:
    cost = [RankCost({"fp32": 4e10}, 0, 0, 0)]
    limit = bound(cost, PEAKS)
    assert limit is not None
    assert limit.peaks == "measured"
    assert limit.overlap_seconds == pytest.approx(1.0)
    assert not impossible(limit, 0.5)
    vendor = bound(cost, PEAKS.model_copy(update={"origin": "vendor"}))
    assert vendor is not None
    assert impossible(vendor, 0.5)


def test_the_text_says_each_rate_and_its_share_of_the_vendors_peak() -> None:
    text = measured("h100x8").as_text()
    assert "memory               8 GB/s  0% of the peak" in text
    assert "gloo ring            300 MB/s" in text


def test_what_cannot_be_measured_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peaks", "--target", "abacus"]) == 2
    assert "There is no target 'abacus'" in capsys.readouterr().err
    assert main(["peaks", "--target", "h100x8"]) == 3
    assert "torch sees no CUDA device here" in capsys.readouterr().err


@pytest.mark.nightly
def test_the_rates_of_this_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Half a minute: four processes import torch and work at the same time."""
    assert main(["peaks", "--json", "--write", str(tmp_path / "peaks.json")]) == 0
    entry = json.loads(capsys.readouterr().out)["cpu-gloo"]
    assert json.loads((tmp_path / "peaks.json").read_text())["cpu-gloo"] == entry
    peaks = Peaks.model_validate(entry["peaks"])
    assert peaks.trustworthy
    assert peaks.origin == "measured"
    assert set(peaks.flops) == {"fp32", "bf16", "fp64"}
