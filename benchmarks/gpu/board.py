"""The first board of a target with several GPUs: rates, references against themselves, examples against references.

    python -m benchmarks.gpu.board --target h200x4 --folder DIR [--seconds 540]

Resumable: what is in DIR already is not measured again, so call it until it says that nothing is left. Rates first
(``benchmarks.gpu.peaks``), then all references as submissions with speed compared (``benchmarks.gpu.lane --timing``: a
paired A/A of all 87, with utilisation against the overlap bound), then the files of examples/. Says at the end how many
references came out faster than themselves, how many use less than half of what the target allows, and what the
examples gain. With ``--target h200x1`` it is a dry run on one GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu.lane import rows
from evaluator import targets

HALF = 0.5
LAST = 60.0
"""Seconds that an evaluation which has begun may still take."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=540)
    parser.add_argument("--ids", nargs="*", default=[], help="only these problems")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    target = targets.target(options.target)
    deadline = time.monotonic() + options.seconds
    rates = options.folder / "peaks.json"
    if target.device == "cuda" and not rates.exists():
        module("benchmarks.gpu.peaks", "--target", target.name, "--json", str(rates))
    results = options.folder / "board.jsonl"
    for more in ([], ["--examples"]):
        left = deadline - time.monotonic() - LAST
        if left > 0:
            ids = ["--ids", *options.ids] if options.ids else []
            where = ["--json", str(results), "--target", target.name, "--ranks", str(target.world_size)]
            precision = ["--precision", str(target.precisions[0]), "--seconds", str(left), "--timing"]
            module("benchmarks.gpu.lane", *where, *precision, *ids, *more)
    print(summary(rows(results)))
    return 0


def module(name: str, *arguments: str) -> None:
    """Runs a module in a process of its own; its output is ours. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", name, *arguments], check=True)


def summary(results: list[dict[str, Any]]) -> str:
    """What the results say, in sentences."""
    references = [row for row in results if row["path"] == "reference"]
    judged = [row for row in references if row["code"] == "correct"]
    faster = sum(row["decision"] == "faster" for row in judged)
    bounds = [row["utilisation"]["utilisation"] for row in judged if row["utilisation"]]
    low = sum(share < HALF for share in bounds)
    lines = [
        f"{len(references)} references, {len(judged)} correct, {faster} faster than themselves.",
        f"{low} of {len(bounds)} use less than half of what the target allows.",
    ]
    for row in results:
        if row["path"] != "reference":
            speed = row["speedup"]
            gain = f"{speed['estimate']:.2f} ({speed['low']:.2f} to {speed['high']:.2f})" if speed else "no speedup"
            lines.append(f"{row['path']}: {row['code']}, {row['decision']}, {gain}")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
