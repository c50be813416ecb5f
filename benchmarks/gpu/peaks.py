"""Measures the rates of the GPUs of this machine, with their clocks before and after, and prints one JSON object.

    python -m benchmarks.gpu.peaks [--target h200x8] [--json FILE]

HBM copy, products in bf16, fp16, fp32, TF32 and fp8, copies between each two GPUs where there are several. About a
minute; needs torch alone. With ``--target`` each rate stands beside the vendor's peak from evaluator/targets.json.
"""

from __future__ import annotations

import argparse
import json
import platform
from pathlib import Path
from typing import Any

import torch

from evaluator import gpus
from evaluator.rates import cuda_rates

TARGETS = Path(__file__).resolve().parents[2] / "evaluator" / "targets.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", help="its vendor's peaks are put beside the rates")
    parser.add_argument("--json", type=Path, help="also write the object there")
    options = parser.parse_args()
    before = clocks()
    rates = cuda_rates()
    result: dict[str, Any] = {
        "gpus": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "versions": {"torch": torch.__version__, "cuda": torch.version.cuda, "python": platform.python_version()},
        "l2_bytes": torch.cuda.get_device_properties(0).L2_cache_size,
        "rates": {"flops": rates.flops, "hbm_bytes_per_second": rates.memory, "link_bytes_per_second": rates.link},
        "details": rates.details,
        "clocks": {"before": before, "after": clocks()},
    }
    if options.target:
        result["share_of_peak"] = shares(options.target, result["rates"])
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def clocks() -> Any:
    """SM clocks (MHz), temperatures and what slows the GPUs, or why that cannot be read."""
    try:
        return [
            {"gpu": gpu.index, "sm": gpu.sm_clock, "max_sm": gpu.max_sm_clock, "slowed_by": gpu.slowed_by}
            for gpu in gpus.read()
        ]
    except gpus.GpusUnavailable as reason:
        return str(reason)


def shares(name: str, rates: dict[str, Any]) -> dict[str, float]:
    """Each rate as a share of the target's peak. Raises SystemExit for an unknown target."""
    entries = {entry["name"]: entry["peaks"] for entry in json.loads(TARGETS.read_text(encoding="utf-8"))["targets"]}
    if name not in entries:
        raise SystemExit(f"There is no target {name!r}; there are {', '.join(entries)}.")
    peaks = entries[name]
    found = {
        f"matmul {dtype}": rate / peaks["flops"][dtype]
        for dtype, rate in rates["flops"].items()
        if peaks.get("flops", {}).get(dtype)
    }
    for part in ("hbm_bytes_per_second", "link_bytes_per_second"):
        if peaks.get(part):
            found[part] = rates[part] / peaks[part]
    return {part: round(share, 4) for part, share in found.items()}


if __name__ == "__main__":
    main()
