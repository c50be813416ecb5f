"""Evaluates references, examples or any files on the GPU of this machine with the whole judge, several at a time.

    python -m benchmarks.gpu.lane --json FILE --target gpu-emulated --ranks 2                 every reference
    python -m benchmarks.gpu.lane --json FILE --target gpu-emulated --ranks 4 --examples      examples/, with probes
    python -m benchmarks.gpu.lane --json FILE --target h200x1 --ranks 1 --timing --ids 1 13   with speed compared
    python -m benchmarks.gpu.lane --json FILE --target gpu-emulated --ranks 2 --faults        benchmarks/gpu/faults/

A file of faults/ says which code it must get and which words its message must have; what differs is shown.

One JSON line a file is appended to FILE as it ends; files that are in it already are left out, so a run that was cut
off goes on. With --timing one file is evaluated at a time. Seconds are those of the whole evaluation beside --jobs
others. Starts nothing new after --seconds. Needs torch and pydantic. ``benchmarks.gpu.results`` keeps what docs/gpu.md
needs.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from evaluator.contract import Job, Limits, Precision, Report

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
FAULTS = Path(__file__).with_name("faults")
LIMITS = Limits(compile=300, ready=120, call=60, timing=300, total=500)
KEPT = ("code", "decision", "message", "failure_id", "seconds", "scheduled_seconds", "hints", "mechanisms")


@dataclass(frozen=True)
class Item:
    """One evaluation to make. ``path`` relative to the project, or "reference"."""

    path: str
    problem_id: int
    target: str
    ranks: int
    timing: bool
    probes: bool
    precision: Precision
    call: float

    @property
    def key(self) -> tuple[str, int, str, int, bool]:
        return self.path, self.problem_id, self.target, self.ranks, self.timing

    def source(self) -> str:
        if self.path == "reference":
            from problems.suite.reference import reference_source
            from problems.suite.registry import get

            return reference_source(get(self.problem_id))
        return (ROOT / self.path).read_text(encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--ids", type=int, nargs="*", help="only these problems")
    parser.add_argument("--examples", action="store_true", help="the files of examples/ instead of the references")
    parser.add_argument("--faults", action="store_true", help="files that fail, instead of the references")
    parser.add_argument("--call", type=float, default=60, help="budget of a call in seconds")
    parser.add_argument("--files", nargs="*", help="these files instead, named as submissions are")
    parser.add_argument("--timing", action="store_true")
    parser.add_argument("--probes", action="store_true", help="also where speed is not compared")
    parser.add_argument("--precision", type=Precision, default=Precision.BF16)
    parser.add_argument("--jobs", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=500)
    options = parser.parse_args()
    done = {tuple(row["key"]) for row in rows(options.json)}
    todo = [item for item in items(options) if item.key not in done]
    for row in evaluated(todo, 1 if options.timing else options.jobs, options.seconds):
        with options.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        shown = [row.get(name) for name in ("code", "decision", "speedup", "seconds", "message", "unexpected")]
        print(row["path"], row["problem"], row["target"], row["ranks"], *shown, flush=True)


def rows(path: Path) -> list[dict[str, Any]]:
    """Evaluations that a file holds; none if it is not there yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def items(options: argparse.Namespace) -> Iterator[Item]:
    """What the options ask for, in order of the problems."""
    from problems.suite.registry import entries

    if options.files or options.examples or options.faults:
        found_in = EXAMPLES.glob("*/*.py") if options.examples else FAULTS.glob("*.py")
        files = [Path(file).resolve() for file in options.files or ()] or sorted(found_in)
        found = [(str(file.relative_to(ROOT)), int(file.name.partition("_")[0])) for file in files]
    else:
        found = [("reference", entry.id) for entry in entries()]
    for path, number in sorted(found, key=lambda entry: entry[1]):
        if not options.ids or number in options.ids:
            probes = options.probes or options.examples or options.timing
            yield Item(
                path, number, options.target, options.ranks, options.timing, probes, options.precision, options.call
            )


def evaluated(todo: list[Item], jobs: int, seconds: float) -> Iterator[dict[str, Any]]:
    """Rows as they come; what has not begun when the seconds are over is left out."""
    deadline = time.monotonic() + seconds
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        waiting: dict[Future[dict[str, Any] | None], Item] = {
            pool.submit(evaluate_one, item, time.time() + seconds): item for item in todo
        }
        for future in as_completed(waiting):
            row = future.result()
            if row is not None:
                yield row
    if time.monotonic() > deadline:
        print("the seconds were over", flush=True)


def evaluate_one(item: Item, deadline: float) -> dict[str, Any] | None:
    """The row of one evaluation; None if it would begin after the deadline."""
    if time.time() > deadline:
        return None
    from evaluator.judge import evaluate

    source = item.source()
    job = Job(
        attempt_id=uuid4(),
        problem_id=item.problem_id,
        target=item.target,
        world_size=item.ranks,
        precision=item.precision,
        file_name=Path(item.path).name,
        source=source,
        limits=LIMITS.model_copy(update={"call": item.call}),
    )
    report = evaluate(job, with_timing=item.timing, with_probes=item.probes)
    return {
        "key": item.key,
        "path": item.path,
        "problem": item.problem_id,
        "target": item.target,
        "ranks": item.ranks,
        **told(report),
        "unexpected": unexpected(source, report),
    }


def unexpected(source: str, report: Report) -> str:
    """What differs from what the file says that it must get; "" if nothing does, or it says nothing."""
    wants = wanted(source)
    if report.code != wants.get("expect", report.code):
        return f"expected {wants['expect']}, got {report.code}"
    whole = report.model_dump_json()
    return "" if wants.get("says", "") in whole else f"nothing says {wants['says']!r}"


def wanted(source: str) -> dict[str, str]:
    """The code (``expect``) and the words (``says``) that a file says it must get; empty if it says nothing."""
    return dict(re.findall(r"^# (expect|says): (.+)$", source, re.MULTILINE))


def told(report: Report) -> dict[str, Any]:
    """What is kept of a report."""
    whole = report.model_dump(mode="json")
    row = {name: whole[name] for name in KEPT}
    row["phases"] = {phase["phase"]: round(phase["seconds"], 2) for phase in whole["phases"] if phase["seconds"]}
    row["errors"] = [rank["error"][-1_500:] for rank in whole["ranks"] if rank["error"]]
    row["log"] = next((rank["log"][-600:] for rank in whole["ranks"] if rank["log"] and report.code != "correct"), "")
    row["patterns"] = [rank["pattern"] for rank in whole["ranks"] if rank["pattern"]]
    row["versions"] = whole["versions"]
    row["isolation"] = whole["isolation"]
    row["utilisation"] = whole["bound"]
    row["speedup"] = whole["speedup"]
    if timing := whole["timing"]:
        pairs = timing.pop("pairs")
        row["timing"] = {**timing, "pairs": len(pairs)}
    return row


if __name__ == "__main__":
    main()
