"""Keeps what the scripts of benchmarks/gpu have measured as small files in docs/data/, without logs and tracebacks.

    python -m benchmarks.gpu.results lane FILE...            benchmarks.gpu.lane: references, examples, faults, timed
    python -m benchmarks.gpu.results aa FILE                 benchmarks.aa --target h200x1, block values of its pairs
    python -m benchmarks.gpu.results oracles FILE            benchmarks.gpu.oracles
    python -m benchmarks.gpu.results emulation FILE          benchmarks.gpu.emulation
    python -m benchmarks.gpu.results peaks FILE              benchmarks.gpu.peaks

Evaluations are added to those that are there, and a later one of the same file, target and number of ranks takes the
place of the earlier; the other kinds are replaced. ``benchmarks.gpu.tables`` makes docs/gpu.md of it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.gpu.lane import rows

Row = dict[str, Any]
DATA = Path(__file__).resolve().parents[2] / "docs" / "data"
KINDS = ("lane", "aa", "oracles", "emulation", "peaks")
VERSIONS = ("gpus", "driver", "cuda", "nccl", "python", "torch", "kernel", "cpus", "suite")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("files", type=Path, nargs="+")
    options = parser.parse_args()
    for path in options.files:
        keep(options.kind, path, DATA)


def keep(kind: str, path: Path, data: Path) -> None:
    """Puts what the file holds into the folder. Raises OSError, or ValueError for a file of another form."""
    if kind == "lane":
        _keep_evaluations(rows(path), data)
    elif kind == "aa":
        from benchmarks.aa_table import compact  # the judge's statistics: needs torch

        write(data / "gpu_aa.jsonl", map(compact, rows(path)))
    elif kind == "oracles":
        write(data / "gpu_oracles.jsonl", json.loads(path.read_text(encoding="utf-8")))
    else:
        kept = json.loads(path.read_text(encoding="utf-8"))
        (data / f"gpu_{kind}.json").write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


def write(path: Path, kept: Iterable[Row]) -> None:
    """One JSON line a row."""
    lines = [json.dumps(row, separators=(",", ":")) + "\n" for row in kept]
    path.write_text("".join(lines), encoding="utf-8")


def _keep_evaluations(new: Sequence[Row], data: Path) -> None:
    for subject in dict.fromkeys(map(subject_of, new)):
        path = data / f"gpu_{subject}.jsonl"
        kept = {_key(row): row for row in rows(path)}
        kept |= {_key(row): trimmed(row) for row in new if subject_of(row) == subject}
        write(path, [kept[key] for key in sorted(kept)])
    hosts = {row["target"]: row for row in rows(data / "gpu_hosts.jsonl")} | {row["target"]: host(row) for row in new}
    write(data / "gpu_hosts.jsonl", [hosts[target] for target in sorted(hosts)])


def subject_of(row: Row) -> str:
    """What an evaluation is an instance of, the last part of the name of its file in docs/data/."""
    if row["key"][-1]:  # speed was to be compared
        return "timed"
    if row["path"] == "reference":
        return "references"
    return "examples" if row["path"].startswith("examples/") else "faults"


def _key(row: Row) -> tuple[int, str, str, int]:
    return row["problem"], row["path"], row["target"], row["ranks"]


def trimmed(row: Row) -> Row:
    """What the tables need of an evaluation; the message only where it says more than its code."""
    kept = {name: row[name] for name in ("path", "problem", "target", "ranks", "code")}
    kept["seconds"] = round(row["seconds"], 1)
    if row["code"] != "correct":
        kept["message"] = first_sentence(row["message"])
    subject = subject_of(row)
    for name in {"faults": ("unexpected", "hints"), "timed": ("decision",)}.get(subject, ()):
        kept[name] = row[name]
    if subject != "references":
        kept["phases"] = {name: round(seconds, 1) for name, seconds in row["phases"].items() if seconds >= 0.05}
    if timing := row.get("timing"):
        kept |= {"pairs": timing["pairs"], "clocks_agree": timing["clock"] and timing["clock"]["agrees"]}
        kept["speedup"] = {name: round(value, 3) for name, value in row["speedup"].items()}
        kept["smallest_detectable"] = round(timing["smallest_detectable"], 3)
    return kept


def first_sentence(message: str) -> str:
    """The message up to its first full stop, or to the first command that a build system repeats."""
    return re.split(r"\.\s|: \[\d+/\d+\]|(?<=')(?=: Error building)", message)[0].rstrip(".")


def host(row: Row) -> Row:
    """On what the evaluations of a target ran, and behind which walls."""
    versions = {name: row["versions"][name] for name in VERSIONS if name in row["versions"]}
    return {"target": row["target"], "versions": versions, "isolation": row["isolation"]}


if __name__ == "__main__":
    main()
