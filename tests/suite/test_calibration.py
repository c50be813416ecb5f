"""The calibration table: what a run leaves out stays, what it finds is written, waivers must be needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from problems.suite import check, registry
from problems.suite.check import Proof, Row
from problems.suite.ranks import Ranks


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "calibration.json"
    monkeypatch.setattr(registry, "CALIBRATION", path)
    monkeypatch.setattr(check, "CALIBRATION", path)
    return path


def found(dtype: torch.dtype, world_size: int, honest: float) -> Proof:
    row = Row(dtype, world_size, honest={"reference[normal]": honest}, cheats={"zeros": 90.0})
    return Proof(registry.get(1), rows=[row])


def kept(table: Path) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(table.read_text())["problems"]["1"]
    return entry


def test_figures_of_other_dtypes_and_world_sizes_stay(table: Path) -> None:
    check.write_table([found(torch.float32, 2, 0.1)])
    check.write_table([found(torch.float16, 8, 0.2)])
    check.write_table([found(torch.float32, 4, 0.3)])
    entry = kept(table)
    assert {(dtype, size): row["honest"] for dtype, rows in entry.items() for size, row in rows.items()} == {
        ("fp32", "2"): 0.1,
        ("fp32", "4"): 0.3,
        ("fp16", "8"): 0.2,
    }


def test_figures_that_hardly_moved_make_no_new_version(table: Path) -> None:
    check.write_table([found(torch.float32, 2, 0.1)])
    before = table.read_text()
    check.write_table([found(torch.float32, 2, 0.11)])
    assert table.read_text() == before
    check.write_table([found(torch.float32, 2, 0.2)])
    assert kept(table)["fp32"]["2"]["honest"] == 0.2


def test_waivers_of_other_runs_stay_until_the_problem_drops_them(table: Path) -> None:
    waiving = replace(registry.get(1), waivers={"stale/fp16/8": "one reason", "zeros/bf16": "another"})
    check.write_table([replace(found(torch.float16, 8, 0.1), problem=waiving, waived={"stale/fp16/8": "one reason"})])
    check.write_table([replace(found(torch.bfloat16, 2, 0.1), problem=waiving, waived={"zeros/bf16": "another"})])
    assert kept(table)["waivers"] == waiving.waivers
    without = replace(waiving, waivers={"zeros/bf16": "another"})
    check.write_table([replace(found(torch.bfloat16, 4, 0.1), problem=without)])
    assert kept(table)["waivers"] == without.waivers


@pytest.mark.parametrize(
    ("waiver", "reported"), [("stale", True), ("stale/fp32", True), ("stale/fp16", False), ("stale/fp32/8", False)]
)
def test_a_waiver_is_idle_only_if_what_it_names_was_run(waiver: str, reported: bool, groups: dict[int, Ranks]) -> None:
    problem = replace(registry.get(2), waivers={waiver: "for no reason"})
    faults = check.prove(problem, groups).faults
    assert faults == ([f"waiver {waiver!r} is not needed; remove it"] if reported else [])
