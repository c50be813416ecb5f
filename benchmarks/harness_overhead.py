"""How much an evaluation costs beyond the calls it has to make, against one bare torchrun of the same file.

    python -m benchmarks.harness_overhead [--repeats 3] [--problems 1 13 27 73]

For each problem, in one run and alternating: one bare torchrun (``benchmarks/bare_launch.py``) and one whole evaluation
of the reference sent in as a submission, both with 4 ranks on cpu-gloo, both as whole processes. Printed:

    overhead ratio = (wall clock of the evaluation - calls and pauses that the judge scheduled) / wall clock of torchrun

and where the time of the evaluation goes, phase by phase (medians over the repeats).
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from problems.suite.reference import reference_source
from problems.suite.registry import get

ROOT = Path(__file__).resolve().parent.parent
WORLD_SIZE = 4


@dataclass(frozen=True)
class Measured:
    bare: float
    total: float
    scheduled: float
    phases: dict[str, float]
    code: str
    decision: str

    @property
    def ratio(self) -> float:
        return (self.total - self.scheduled) / self.bare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--problems", nargs="+", default=["1", "13", "27", "73"])
    options = parser.parse_args()
    print(f"{'problem':>7}  {'torchrun':>8}  {'total':>7}  {'scheduled':>9}  {'overhead':>8}  ratio  verdict")
    ratios = []
    for number in options.problems:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "reference_as_submission.py"
            path.write_text(reference_source(get(number)), encoding="utf-8")
            runs = [measure(path, number) for _ in range(options.repeats)]
        ratios.append(statistics.median(run.ratio for run in runs))
        middle = {
            name: statistics.median(getattr(run, name) for run in runs) for name in ("bare", "total", "scheduled")
        }
        overhead = middle["total"] - middle["scheduled"]
        verdicts = ", ".join(sorted({f"{run.code} {run.decision}" for run in runs}))
        print(
            f"{number:>7}  {middle['bare']:>6.1f} s  {middle['total']:>5.1f} s  {middle['scheduled']:>7.1f} s  "
            f"{overhead:>6.1f} s  {ratios[-1]:>5.2f}  {verdicts}"
        )
        for phase in runs[0].phases:
            print(f"{'':>9}{phase:<12}{statistics.median(run.phases[phase] for run in runs):>7.2f} s")
    print(f"median overhead ratio over {len(ratios)} problems: {statistics.median(ratios):.2f}")


def measure(path: Path, number: str) -> Measured:
    """One bare launch, then one evaluation."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    launch = ["torch.distributed.run", f"--nproc-per-node={WORLD_SIZE}", "--standalone", "benchmarks/bare_launch.py"]
    bare, _ = timed([sys.executable, "-m", *launch, str(path), number], environment)
    evaluate = ["evaluator", "evaluate", str(path), "--problem", number, "--world-size", str(WORLD_SIZE), "--json"]
    total, output = timed([sys.executable, "-m", *evaluate], environment)
    report = json.loads(output)
    phases = {phase["phase"]: phase["seconds"] for phase in report["phases"]}
    phases["start, end"] = total - sum(phases.values())
    return Measured(bare, total, report["scheduled_seconds"], phases, report["code"], report["decision"])


def timed(command: list[str], environment: dict[str, str]) -> tuple[float, str]:
    started = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - started
    if not done.stdout and done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-2_000:]}")
    return seconds, done.stdout


if __name__ == "__main__":
    main()
