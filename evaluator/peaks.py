"""``python -m evaluator peaks``: measures the rates of this host for a target, prints them, and writes them to a file.

The file (setting PKB_MEASURED_PEAKS) gives bounds and utilisation on targets for which no vendor's peaks are known. It
never makes a time impossible: what a benchmark has reached is no limit.
"""

from __future__ import annotations

import datetime
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evaluator.targets import Peaks, Target, cpus_of_ranks, last_level_cache_bytes, threads_per_rank


class CannotMeasure(RuntimeError):
    """The rates cannot be measured here; the text says why."""


@dataclass(frozen=True)
class Measured:
    """What was measured for a target, and beside it the peaks that the target has."""

    target: Target
    peaks: Peaks
    details: dict[str, float]
    host: str
    when: str
    torch: str

    def entry(self) -> dict[str, Any]:
        """As it stands in the file, by the name of the target."""
        return {
            "peaks": self.peaks.model_dump(),
            "details": self.details,
            "host": self.host,
            "when": self.when,
            "torch": self.torch,
            "world_size": self.target.world_size,
        }

    def as_text(self) -> str:
        """One line a rate, with its share of the vendor's peak where there is one."""
        known = self.target.peaks
        rows = [
            (f"matmul {name}", rate, known.flops.get(name, 0.0), "flop/s") for name, rate in self.peaks.flops.items()
        ]
        rows.append(("memory", self.peaks.hbm_bytes_per_second, known.hbm_bytes_per_second, "B/s"))
        rows.append(("link, one direction", self.peaks.link_bytes_per_second, known.link_bytes_per_second, "B/s"))
        lines = [f"{self.target.title} on {self.host}, torch {self.torch}, per rank:"]
        for name, rate, peak, unit in rows:
            share = f"  {rate / peak:.0%} of the peak" if peak and rate else ""
            lines.append(f"  {name:<20} {_scaled(rate)}{unit}{share}" if rate else f"  {name:<20} no other device")
        named = {f"matmul {name}" for name in self.peaks.flops} | {"copy"}
        lines += [f"  {name:<20} {_scaled(rate)}B/s" for name, rate in self.details.items() if name not in named]
        return "\n".join(lines)


def _scaled(rate: float) -> str:
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if rate >= factor:
            return f"{rate / factor:.3g} {prefix}"
    return f"{rate:.3g} "


def measure(target: Target) -> Measured:
    """The rates of one rank of the target on this host, about half a minute. Raises CannotMeasure."""
    import torch

    from evaluator import rates

    try:
        if target.device == "cuda":
            found = rates.cuda_rates()
        else:
            ranks = target.world_size
            found = rates.cpu_rates(cpus_of_ranks(ranks), threads_per_rank(ranks))
    except RuntimeError as error:
        raise CannotMeasure(f"The rates of {target.name} cannot be measured here. {error}") from error
    peaks = Peaks(
        flops=found.flops,
        hbm_bytes_per_second=found.memory,
        link_bytes_per_second=found.link,
        last_level_cache_bytes=last_level_cache_bytes(target),
        origin="measured",
    )
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return Measured(target, peaks, found.details, rates.host(), now, torch.__version__)


def write(measured: Measured, file: Path) -> None:
    """Puts the entry into the file and leaves those of other targets. Raises ValueError for a file of another kind."""
    entries = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if not isinstance(entries, dict):
        raise ValueError(f"{file} does not hold measured peaks.")
    entries[measured.target.name] = measured.entry()
    file.write_text(json.dumps(entries, indent=2) + "\n", encoding="utf-8")
