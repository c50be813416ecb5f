"""Targets as pages and prompts show them, read from ``evaluator/targets.json``. Standard library only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluator.roofline import PeakRates

FILE = Path(__file__).resolve().parents[1] / "evaluator" / "targets.json"


@dataclass(frozen=True)
class MeasuredRates:
    """What a GPU of a target reached: ``flops`` of products by dtype, bytes per second of a copy in its memory.

    They stand beside the vendor's peaks and never enter a bound. ``gpu`` says on what, ``date`` (ISO) when.
    """

    date: str
    command: str
    gpu: str
    flops: Mapping[str, float]
    hbm_bytes_per_second: float


@dataclass(frozen=True)
class Hardware:
    """A target: what it is, its peak rates (None where none are trusted) and how data move between its ranks."""

    name: str
    title: str
    device: str
    gpu: str
    world_size: int
    precision: str
    precisions: tuple[str, ...]
    ranked: bool
    label: str = ""
    rates: PeakRates | None = None
    measured: MeasuredRates | None = None
    cache_bytes: int = 0
    movement: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


def load(file: Path = FILE) -> dict[str, Hardware]:
    """All targets by name, in the order of the file."""
    entries = json.loads(file.read_text(encoding="utf-8"))["targets"]
    return {entry["name"]: _hardware(entry) for entry in entries}


def _hardware(entry: Mapping[str, Any]) -> Hardware:
    peaks = entry["peaks"]
    rates = None
    if peaks.get("flops"):
        rates = PeakRates(peaks["flops"], peaks["hbm_bytes_per_second"], peaks["link_bytes_per_second"])
    return Hardware(
        **{name: entry[name] for name in ("name", "title", "device", "gpu", "world_size", "precision", "ranked")},
        precisions=tuple(entry["precisions"]),
        label=entry.get("label", ""),
        rates=rates,
        measured=MeasuredRates(**entry["measured"]) if "measured" in entry else None,
        cache_bytes=peaks.get("last_level_cache_bytes", 0),
        movement=tuple(entry.get("movement", ())),
        facts=entry.get("hardware", {}),
    )
