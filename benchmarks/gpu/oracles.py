"""Compares every oracle on the GPU with itself on the CPU: the small shapes of the suite's check, two ranks, bf16.

    python -m benchmarks.gpu.oracles [--json FILE]

Prints, for each problem, the largest difference of a float64 value in units of the tensor's rms, whether everything
else is the same to the bit, the seconds on either side, and why an oracle stays on the CPU if it does.
"""

from __future__ import annotations

import argparse
import json
import logging
import time
from pathlib import Path
from typing import Any

import torch

from evaluator.judge.oracles import OnDevice
from problems.suite import trees
from problems.suite.base import Expected, Rng
from problems.suite.registry import entries, get

WORLD_SIZE = 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    logging.disable()
    rows = [compared(entry.id) for entry in entries()]
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    worst = max(row["difference"] for row in rows)
    print(f"{sum(not row['refusal'] for row in rows)} of {len(rows)} on the GPU; largest difference {worst:.1e} rms")


def compared(number: int) -> dict[str, Any]:
    problem = get(number)
    case = problem.check_case(world_size=WORLD_SIZE, dtype=torch.bfloat16)
    arguments = problem.inputs(case, Rng(20_261_201, WORLD_SIZE))
    here, seconds = timed(lambda: problem.oracle(case, arguments))
    on_gpu = OnDevice(number, problem.oracle, torch.device("cuda"))
    there, gpu_seconds = timed(lambda: on_gpu(case, arguments))
    row: dict[str, Any] = {"id": number, "refusal": on_gpu.refusal, "difference": 0.0, "same": True}
    row |= {"cpu_seconds": round(seconds, 4), "gpu_seconds": round(gpu_seconds, 4)}
    for one, other in zip(values(here), values(there), strict=True):
        if one.is_floating_point() or one.is_complex():
            rms = float(one.abs().double().square().mean().sqrt()) if one.numel() else 0.0
            apart = (one - other).abs().double().nan_to_num().max() if one.numel() else torch.tensor(0.0)
            row["difference"] = max(row["difference"], float(apart) / (rms or 1.0))
        else:
            row["same"] = row["same"] and torch.equal(one, other)
    print(*row.values(), flush=True)
    return row


def values(expected: list[Expected]) -> list[torch.Tensor]:
    return [leaf.value for one in expected for _, leaf in trees.leaves(one)]


def timed(action: Any) -> tuple[list[Expected], float]:
    began = time.perf_counter()
    return action(), time.perf_counter() - began


if __name__ == "__main__":
    main()
