"""The tables of docs/gpu.md: later results replace earlier ones, and no gap looks like a verdict."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu import results, tables
from benchmarks.gpu.lane import ROOT

HOST = {
    "versions": {"torch": "2.11.0", "gpus": "a GPU"},
    "isolation": {"mode": "bwrap-root", "uid": 60_601, "network": True, "seccomp": True, "cgroup": False}
    | {"limits": {"memory": "62 GiB"}},
}


def evaluation(number: int, code: str = "correct", **more: Any) -> dict[str, Any]:
    """An evaluation as ``benchmarks.gpu.lane`` writes it."""
    row: dict[str, Any] = {
        "path": "reference",
        "problem": number,
        "target": "gpu-emulated",
        "ranks": 2,
        "code": code,
        "message": "",
    }
    row |= {"seconds": 12.34, "phases": {}, "errors": ["a traceback"], "hints": [], "unexpected": ""}
    return row | {"key": ["reference", number, "gpu-emulated", 2, False]} | HOST | more


def kept(kind: str, rows: list[dict[str, Any]], folder: Path) -> Path:
    raw = folder / "raw.jsonl"
    raw.write_text("".join(json.dumps(row) + "\n" for row in rows))
    results.keep(kind, raw, folder)
    return folder


def cells(made: str, first: str) -> list[str]:
    """The other cells of the row that begins with this one."""
    rows = [line.strip("| ").split(" | ") for line in made.splitlines()]
    return next(row[1:] for row in rows if row[0] == first)


def test_later_evaluations_take_the_place_of_earlier_ones_and_others_stay(tmp_path: Path) -> None:
    kept("lane", [evaluation(1), evaluation(2, "harness_failure", message="It broke. In /some/folder.")], tmp_path)
    kept("lane", [evaluation(2, seconds=20.0), evaluation(3, ranks=4)], tmp_path)
    made = tables.references(tmp_path)
    assert cells(made, "1")[1:] == [tables.MISSING, "correct, 12 s", tables.MISSING]
    assert cells(made, "2")[1:] == [tables.MISSING, "correct, 20 s", tables.MISSING]
    assert cells(made, "3")[1:] == [tables.MISSING, tables.MISSING, "correct, 12 s"]
    assert cells(tables.counts(tmp_path), "evaluated") == ["0", "2", "1"]
    assert cells(tables.counts(tmp_path), "not run") == ["87", "85", "86"]
    assert "traceback" not in (tmp_path / "gpu_references.jsonl").read_text()


def test_what_failed_is_said_in_its_first_sentence(tmp_path: Path) -> None:
    kept("lane", [evaluation(2, "harness_failure", message="It broke | twice. In /some/folder.")], tmp_path)
    row = "| 2 | gpu-emulated | 2 | harness_failure | It broke \\| twice |"
    assert tables.failures(tmp_path).splitlines()[-1] == row


def test_files_that_fail_show_what_they_wanted_and_what_they_got(tmp_path: Path) -> None:
    path = "benchmarks/gpu/faults/1_misaligned_load.py"
    odd = evaluation(1, "runtime_error", path=path, message="Odd.", unexpected="expected another")
    made = tables.faults(kept("lane", [odd], tmp_path))
    assert cells(made, "`1_misaligned_load.py`")[1:] == [
        "illegal_memory_access",
        "runtime_error",
        "Odd",
        "expected another",
    ]
    assert tables.MISSING in cells(made, "`1_nvcc_error.py`")


def test_an_evaluation_without_a_decision_is_in_the_table_of_the_timed_ones(tmp_path: Path) -> None:
    timed = {"key": ["reference", 1, "gpu-emulated", 2, True], "decision": "none", "phases": {"trials": 2.04}}
    made = tables.timed(kept("lane", [evaluation(1, **timed)], tmp_path))
    assert cells(made, "1") == ["gpu-emulated", "none", "", "2.0 s", "0.0 s", "0.0 s", "0.0 s", "12.3 s"]


def test_oracles_are_counted_by_how_far_they_are_apart(tmp_path: Path) -> None:
    same = {"difference": 0.0, "same": True, "refusal": ""}
    compared = [same | {"id": number} for number in (1, 2, 3, 5)]
    compared += [same | {"id": 6, "difference": 3e-13}, same | {"id": 7, "same": False}]
    compared += [same | {"id": 8, "refusal": "TypeError: of the host"}]
    (tmp_path / "raw.json").write_text(json.dumps(compared))
    results.keep("oracles", tmp_path / "raw.json", tmp_path)
    made = tables.oracles(tmp_path)
    assert cells(made, "equal to the bit") == ["4", "1 to 3, 5"]
    assert cells(made, "up to 1e-12 rms") == ["1", "6"]
    assert cells(made, "not equal to the bit where that was asked") == ["1", "7"]
    assert cells(made, "stays on the CPU: of the host") == ["1", "8"]


def test_only_the_table_under_the_heading_is_replaced() -> None:
    text = "# A\n\n| old |\n|---|\n\n## B\n\nWords.\n\n| old |\n|---|\n| x |\n\nMore.\n"
    assert tables.with_table(text, "B", "| new |\n") == "# A\n\n| old |\n|---|\n\n## B\n\nWords.\n\n| new |\n\nMore.\n"
    with pytest.raises(ValueError, match="no table under the heading 'C'"):
        tables.with_table(text, "C", "| new |\n")


def test_the_document_has_the_tables_of_the_results_that_are_kept() -> None:
    text = (ROOT / "docs/gpu.md").read_text(encoding="utf-8")
    for heading, make in tables.TABLES.items():
        text = tables.with_table(text, heading, made := make(results.DATA))
        assert made.count("\n") > 2, heading
    assert text == (ROOT / "docs/gpu.md").read_text(encoding="utf-8"), "run python -m benchmarks.gpu.tables"
