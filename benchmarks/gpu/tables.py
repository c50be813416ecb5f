"""Puts the tables of what was measured on GPUs into docs/gpu.md: the first table under each heading that is named here.

    python -m benchmarks.gpu.tables            from docs/data/gpu_*, which ``benchmarks.gpu.results`` keeps

The words between the tables are written by hand, and stay. What was not evaluated is "not run" in every table.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from math import inf
from pathlib import Path
from typing import Any

from benchmarks.aa_table import noise
from benchmarks.gpu.lane import EXAMPLES, FAULTS, ROOT, rows, wanted
from benchmarks.gpu.results import DATA, Row
from benchmarks.markdown import table
from evaluator.targets import target
from problems.suite.registry import entries

DOCUMENT = ROOT / "docs" / "gpu.md"
PLACES = (("h200x1", 1), ("gpu-emulated", 2), ("gpu-emulated", 4))
SIDE_BY_SIDE = ("1 rank, NCCL", "2 ranks, emulated", "4 ranks, emulated")
MISSING = "not run"
WALLS = {"network": "network of its own", "seccomp": "system calls filtered", "cgroup": "control group of its own"}


def main() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    for heading, make in TABLES.items():
        text = with_table(text, heading, make(DATA))
    DOCUMENT.write_text(text, encoding="utf-8")


def with_table(text: str, heading: str, made: str) -> str:
    """The document with the first table under the heading replaced. Raises ValueError if there is none."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(?:(?!#|\|).*\n)*((?:\|.*\n)+)", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"The document has no table under the heading {heading!r}.")
    return text[: found.start(1)] + made + text[found.end(1) :]


def of_places(path: Path) -> dict[tuple[str, int, str, int], Row]:
    """Evaluations by path, problem, target and number of ranks."""
    return {(row["path"], row["problem"], row["target"], row["ranks"]): row for row in rows(path)}


def counts(data: Path) -> str:
    """How many references were correct, were not, and were not evaluated, in each place."""
    found = of_places(data / "gpu_references.jsonl")
    problems = [entry.id for entry in entries()]
    columns = []
    for place in PLACES:
        codes = [found[key]["code"] for number in problems if (key := ("reference", number, *place)) in found]
        right = Counter(codes)["correct"]
        columns.append((len(codes), right, len(codes) - right, len(problems) - len(codes)))
    lines = zip(
        ("evaluated", "correct", "not correct", MISSING), *[map(str, column) for column in columns], strict=True
    )
    return table(("", *(f">{name}" for name in SIDE_BY_SIDE)), lines)


def references(data: Path) -> str:
    """Each reference in each place, with the seconds of the whole evaluation."""
    found = of_places(data / "gpu_references.jsonl")
    lines = [
        (entry.id, entry.slug, *(verdict(found.get(("reference", entry.id, *place))) for place in PLACES))
        for entry in entries()
    ]
    return table((">id", "problem", *SIDE_BY_SIDE), lines)


def verdict(row: Row | None) -> str:
    return MISSING if row is None else f"{row['code']}, {row['seconds']:.0f} s"


def failures(data: Path) -> str:
    """What was said where a reference was not correct."""
    lines = [
        (row["problem"], row["target"], row["ranks"], row["code"], row["message"])
        for row in rows(data / "gpu_references.jsonl")
        if row["code"] != "correct"
    ]
    return table((">id", "target", ">ranks", "code", "what was said"), lines)


def examples(data: Path) -> str:
    """Each example on 2 and 4 emulated ranks, with the phases that took longest."""
    found = of_places(data / "gpu_examples.jsonl")
    lines = []
    for number, path in numbered(EXAMPLES.glob("*/*.py")):
        name = str(path.relative_to(ROOT))
        cells = [found.get((name, number, *place)) for place in PLACES[1:]]
        lines.append((number, f"`{path.relative_to(EXAMPLES)}`", *map(in_phases, cells)))
    return table((">id", "file", *SIDE_BY_SIDE[1:]), lines)


def numbered(files: Iterable[Path]) -> list[tuple[int, Path]]:
    """Files with the problem that their names begin with, in its order."""
    return sorted((int(file.name.partition("_")[0]), file) for file in files)


def in_phases(row: Row | None) -> str:
    if row is None:
        return MISSING
    phases = ", ".join(f"{name} {seconds:.0f}" for name, seconds in row["phases"].items() if seconds >= 1)
    return f"{verdict(row)} ({phases})"


def faults(data: Path) -> str:
    """Each file that fails on purpose: the code it must get, what it got, and what was said."""
    found = {row["path"]: row for row in rows(data / "gpu_faults.jsonl")}
    lines = []
    for _, path in numbered(FAULTS.glob("*.py")):
        source = path.read_text(encoding="utf-8")
        about = source.partition("\n")[0].strip('"')
        row = found.get(str(path.relative_to(ROOT)))
        got = (row["code"], row["message"], row["unexpected"]) if row else (MISSING, "", "")
        lines.append((f"`{path.name}`", about, wanted(source)["expect"], *got))
    return table(("file", "what it does", "expected", "code", "what was said", "not as expected"), lines)


def emulation(data: Path) -> str:
    """Each case of the emulated groups, and the first thing that was wrong."""
    cases: Mapping[str, Sequence[Any]] = json.loads((data / "gpu_emulation.json").read_text(encoding="utf-8"))
    return table(
        ("case", "outcome"),
        [(name.replace("_", " "), wrong[0] if wrong else "passed") for name, wrong in cases.items()],
    )


def oracles(data: Path) -> str:
    """How far oracles on the GPU are from themselves on the CPU, by how much."""
    compared = rows(data / "gpu_oracles.jsonl")
    there = [row for row in compared if not row["refusal"]]
    steps = ((0.0, "equal to the bit"), (1e-14, "up to 1e-14 rms"), (1e-12, "up to 1e-12 rms"), (inf, "further apart"))
    lines, below = [], -1.0
    for limit, name in steps:
        lines.append((name, [row["id"] for row in there if row["same"] and below < row["difference"] <= limit]))
        below = limit
    lines.append(("not equal to the bit where that was asked", [row["id"] for row in there if not row["same"]]))
    for reason in dict.fromkeys(row["refusal"] for row in compared if row["refusal"]):
        stays = [row["id"] for row in compared if row["refusal"] == reason]
        lines.append((f"stays on the CPU: {reason.partition(': ')[2]}", stays))
    return table(("", ">problems", "ids"), [(name, len(ids), listed(ids)) for name, ids in lines if ids])


def listed(ids: Sequence[int]) -> str:
    """Ids with runs of three and more shortened, such as "1 to 8, 10"."""
    runs: list[list[int]] = []
    for number in ids:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(f"{run[0]} to {run[-1]}" if len(run) > 2 else ", ".join(map(str, run)) for run in runs)


def peaks(data: Path) -> str:
    """Measured rates beside the vendor's."""
    rates = json.loads((data / "gpu_peaks.json").read_text(encoding="utf-8"))["rates"]
    vendor = target("h200x1").peaks
    lines = [
        (f"product in {dtype}", f"{rate / 1e12:.0f} TFLOP/s", *beside(rate, vendor.flops[dtype], "TFLOP/s", 0))
        for dtype, rate in rates["flops"].items()
    ]
    memory = rates["hbm_bytes_per_second"]
    copied = beside(memory, vendor.hbm_bytes_per_second, "TB/s", 2)
    lines.append(("copy in HBM, bytes read and written", f"{memory / 1e12:.2f} TB/s", *copied))
    return table(("", ">measured", ">vendor", ">share"), lines)


def beside(rate: float, peak: float, unit: str, digits: int) -> tuple[str, str]:
    return f"{peak / 1e12:.{digits}f} {unit}", f"{rate / peak:.0%}"


def spread(data: Path) -> str:
    """Noise of the pairs of programs compared with themselves."""
    return noise([row for row in rows(data / "gpu_aa.jsonl") if not row["slower"]]).rstrip("\n") + "\n"


def comparisons(data: Path) -> str:
    """Each paired comparison with its decision."""
    lines = []
    for row in rows(data / "gpu_aa.jsonl"):
        effect = f"{row['slower']} slowed by {row['share']:.0%}" if row["slower"] else "none"
        if row["decision"] == "none":
            lines.append((row["setting"], effect, "", len(row["pairs"]), row["why"], "", ""))
            continue
        call, trains = f"{row['reference_us'] / 1e3:.2f} ms", row["back_to_back"]
        found = in_words(row["estimate"], *row["interval"])
        shown = f"{trains:.2f}" if trains else ""
        lines.append((row["setting"], effect, call, len(row["pairs"]), row["decision"], found, shown))
    heads = ("setting", "known effect", ">a call", ">pairs", "decision", ">speedup, 95 %", ">back to back")
    return table(heads, lines)


def in_words(estimate: float, low: float, high: float) -> str:
    return f"{estimate:.2f} ({low:.2f} to {high:.2f})"


def timed(data: Path) -> str:
    """Seconds to a verdict with everything that a submission gets, by phase."""
    names = ("trials", "timing", "probes", "census")
    lines = []
    for row in rows(data / "gpu_timed.jsonl"):
        phases = [f"{row['phases'].get(name, 0.0):.1f} s" for name in names]
        speed = in_words(**row["speedup"]) if "speedup" in row else ""
        lines.append((row["problem"], row["target"], row["decision"], speed, *phases, f"{row['seconds']:.1f} s"))
    heads = (">id", "target", "decision", ">speedup, 95 %", *(f">{name}" for name in names), ">whole evaluation")
    return table(heads, lines)


def walls(data: Path) -> str:
    """What the sandbox said of itself in the last evaluation of each target."""
    hosts = rows(data / "gpu_hosts.jsonl")
    isolations = [host["isolation"] for host in hosts]
    lines = [
        (name, *(isolation[part] for isolation in isolations)) for name, part in (("mode", "mode"), ("uid", "uid"))
    ]
    lines += [(name, *("yes" if one[part] else "no" for one in isolations)) for part, name in WALLS.items()]
    lines += [(limit, *(one["limits"].get(limit, "") for one in isolations)) for limit in isolations[0]["limits"]]
    return table(("", *(host["target"] for host in hosts)), lines)


TABLES: dict[str, Callable[[Path], str]] = {
    "Limits in force": walls,
    "The references": counts,
    "Each reference": references,
    "Not correct": failures,
    "The examples": examples,
    "CUDA failures": faults,
    "The emulated group": emulation,
    "Oracles on the GPU": oracles,
    "Measured peaks": peaks,
    "Noise of a pair": spread,
    "Each comparison": comparisons,
    "Time to a verdict": timed,
}

if __name__ == "__main__":
    main()
