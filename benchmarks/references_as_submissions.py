"""Sends every reference of the suite in as a submission: each must be correct, and hardly any may be faster or slower.

    python -m benchmarks.references_as_submissions [--ids 1 13] [--no-timing] [--lanes 1] [--json FILE]

The whole judge on cpu-gloo with 4 ranks, about 20 s a problem with timing (half an hour for all 87 on two cores). On a
machine with many cores ``--lanes N`` runs N evaluations beside each other, each on cores of its own. Exit status 1 if a
reference is not correct, or if more than two are anything but a tie.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from problems.suite.reference import reference_source
from problems.suite.registry import entries, get

ROOT = Path(__file__).resolve().parent.parent
WORLD_SIZE = 4
MAX_NOT_TIED = 2
LIMIT = 900.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ids", type=int, nargs="*", help="only these problems")
    parser.add_argument("--no-timing", action="store_true")
    parser.add_argument("--lanes", type=int, default=1, help="evaluations at a time, on cores of their own")
    parser.add_argument("--seconds", type=float, default=7_200, help="start no evaluation after this many seconds")
    parser.add_argument("--json", type=Path, help="also write the rows there")
    options = parser.parse_args()
    rows = sorted(evaluate_all(options), key=lambda row: int(row["id"]))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    wrong = [row for row in rows if row["code"] != "correct"]
    not_tied = [row for row in rows if row["code"] == "correct" and row["decision"] not in ("tie", "none")]
    print(f"{len(rows) - len(wrong)} of {len(rows)} references correct; {len(not_tied)} not a tie.")
    return 1 if wrong or len(not_tied) > MAX_NOT_TIED else 0


def evaluate_all(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One row for each problem, printed as it comes."""
    cores = sorted(os.sched_getaffinity(0))
    share = len(cores) // options.lanes
    lanes: SimpleQueue[set[int]] = SimpleQueue()
    for lane in range(options.lanes):
        lanes.put(set(cores[lane * share : (lane + 1) * share]))
    deadline = time.monotonic() + options.seconds
    numbers = [entry.id for entry in entries() if not options.ids or entry.id in options.ids]

    def one(number: int) -> dict[str, Any]:
        if time.monotonic() > deadline:
            return {"id": number, "slug": "", "code": "not reached", "decision": "none", "seconds": 0.0}
        lane = lanes.get()
        try:
            return evaluate(number, lane, timing=not options.no_timing)
        finally:
            lanes.put(lane)

    with ThreadPoolExecutor(options.lanes) as pool:
        for row in pool.map(one, numbers):
            print(
                " ".join(
                    str(row.get(key, "")) for key in ("id", "slug", "code", "decision", "speedup", "seconds", "message")
                )
            )
            sys.stdout.flush()
            yield row


def evaluate(number: int, cores: set[int], *, timing: bool) -> dict[str, Any]:
    problem = get(number)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{number}_{problem.slug}_pytorch.py"
        path.write_text(reference_source(problem), encoding="utf-8")
        command = [sys.executable, "-m", "evaluator", "evaluate", str(path), "--problem", str(number)]
        command += ["--world-size", str(WORLD_SIZE), "--json", *([] if timing else ["--no-timing"])]
        started = time.monotonic()
        os.sched_setaffinity(0, cores)  # of this thread; what it starts inherits them
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    row = {"id": number, "slug": problem.slug, "seconds": round(time.monotonic() - started, 1)}
    if not done.stdout:
        return {**row, "code": "no report", "decision": "none", "message": done.stderr[-300:]}
    report = json.loads(done.stdout)
    row |= {"code": report["code"], "decision": report["decision"]}
    if report["speedup"]:
        row["speedup"] = [round(report["speedup"][key], 3) for key in ("estimate", "low", "high")]
    if report["timing"]:
        row["reference_ms"] = round(report["timing"]["reference_seconds"] * 1e3, 3)
    return row if report["code"] == "correct" else {**row, "message": report["message"]}


if __name__ == "__main__":
    sys.exit(main())
