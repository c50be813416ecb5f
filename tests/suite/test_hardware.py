"""Figures of the targets: what the document says with its sources is what bounds are computed from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = {"TFLOP/s": 1e12, "TB/s": 1e12, "GB/s": 1e9, "MiB": 2**20, "GB": 1e9}


def documented() -> dict[str, list[float]]:
    """GPU -> the figures of its row, in flops, bytes and seconds."""
    rows = re.findall(
        r"^\| ([A-Z]\d+\S*(?: SXM)?) \| (.+) \|$", (ROOT / "docs/suite_hardware.md").read_text(), re.MULTILINE
    )
    found = {}
    for gpu, row in rows:
        cells = [cell.split() for cell in row.split(" | ")]
        found[gpu] = [float(cell[0]) * (UNITS[cell[1]] if len(cell) > 1 else 1) for cell in cells]
    return found


def test_targets_have_the_figures_that_the_document_gives_with_their_sources() -> None:
    targets = json.loads((ROOT / "evaluator/targets.json").read_text())["targets"]
    known = documented()
    of_gpus = [target for target in targets if target["gpu"]]
    assert {target["gpu"] for target in of_gpus} == known.keys()
    for target in of_gpus:
        peaks, facts = target["peaks"], target["hardware"]
        flops = peaks["flops"]
        arithmetic = [flops[unit] for unit in ("bf16", "fp8", "tf32", "fp32")]
        rates = [peaks["hbm_bytes_per_second"], peaks["link_bytes_per_second"], peaks["last_level_cache_bytes"]]
        figures = [*arithmetic, *rates, facts["memory_bytes"], facts["sms"]]
        assert figures == known[target["gpu"]], target["name"]
        assert flops["fp16"] == flops["bf16"]
        assert facts["shared_memory_per_block_bytes"] == 227 * 1024


def test_measured_rates_are_those_that_were_kept_and_stand_in_the_document() -> None:
    targets = json.loads((ROOT / "evaluator/targets.json").read_text())["targets"]
    kept = json.loads((ROOT / "docs/data/gpu_peaks.json").read_text())["rates"]
    row = re.search(r"^\| one NVIDIA H200 \| (.+) \|$", (ROOT / "docs/suite_hardware.md").read_text(), re.MULTILINE)
    assert row is not None
    measured = {target["name"]: target["measured"] for target in targets if "measured" in target}
    assert measured.keys() == {target["name"] for target in targets if target["gpu"] == "H200 SXM"}
    for rates in measured.values():
        assert rates["flops"] == pytest.approx(kept["flops"], rel=1e-3)
        assert rates["hbm_bytes_per_second"] == pytest.approx(kept["hbm_bytes_per_second"], rel=1e-3)
        figures = [f"{rates['flops'][dtype] / 1e12:.0f} TFLOP/s" for dtype in ("bf16", "fp16", "fp8", "tf32", "fp32")]
        assert row[1].split(" | ") == [*figures, f"{rates['hbm_bytes_per_second'] / 1e12:.2f} TB/s"]
