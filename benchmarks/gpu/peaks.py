"""Measures the rates of the GPUs of this machine, with their clocks before and after, and prints one JSON object.

    python -m benchmarks.gpu.peaks [--target h200x8] [--json FILE]

HBM copy, products in bf16, fp16, fp32, TF32 and fp8; where there are several GPUs, copies between each two and the bus
bandwidth of an all-reduce over NCCL, 2 (W - 1) / W times its bytes per second. Ten seconds on one GPU; needs torch
alone. With ``--target`` each rate stands beside the vendor's peak from evaluator/targets.json.
"""

from __future__ import annotations

import argparse
import json
import platform
import tempfile
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.multiprocessing.spawn import spawn

from evaluator import gpus
from evaluator.rates import best_seconds, cuda_rates

BUS_BYTES = 1024**3
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
    if (ranks := torch.cuda.device_count()) > 1:
        result["details"]["all-reduce bus bandwidth"] = bus_bandwidth(ranks)
    text = json.dumps(result, indent=1)
    print(text)
    if options.json:
        options.json.write_text(text + "\n", encoding="utf-8")


def bus_bandwidth(ranks: int, device: str = "cuda", size: int = BUS_BYTES) -> float:
    """Bytes per second and direction of an all-reduce of ``size`` bytes per rank, as nccl-tests tells it."""
    with tempfile.TemporaryDirectory() as folder:
        spawn(_all_reduce, (ranks, device, size, folder), nprocs=ranks)  # type: ignore[no-untyped-call]
        seconds = max(float(path.read_text()) for path in Path(folder).glob("*.seconds"))
    return 2 * (ranks - 1) / ranks * size / seconds


def _all_reduce(rank: int, ranks: int, device: str, size: int, folder: str) -> None:
    """One rank of the measurement: the fastest of some calls, into a file of its own."""
    where = torch.device(device, rank if device == "cuda" else 0)
    if device == "cuda":
        torch.cuda.set_device(where)
    backend = "nccl" if device == "cuda" else "gloo"
    dist.init_process_group(backend, init_method=f"file://{folder}/rendezvous", rank=rank, world_size=ranks)
    data = torch.zeros(size // 2, dtype=torch.bfloat16, device=where)

    def call() -> None:
        dist.all_reduce(data)
        if device == "cuda":
            torch.cuda.synchronize(where)

    Path(folder, f"{rank}.seconds").write_text(str(best_seconds(call)), encoding="utf-8")
    dist.destroy_process_group()


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
