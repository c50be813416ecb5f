"""Makes docs/suite_on_gpu.md of what ``benchmarks.gpu.suite_world_size_1`` has written.

python -m benchmarks.gpu.suite_table docs/data/suite_w1_h200.json > docs/suite_on_gpu.md
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.markdown import table

INTRODUCTION = """\
# The references on one GPU

Every reference of the suite, run on one GPU with world size 1 over NCCL: does it run unchanged on CUDA tensors, and
does its result agree with the float64 oracle within the calibrated tolerance? bf16, public GPU shapes. The time of a
call is the median of CUDA events, on inputs that stay the same; it shows that a call is sound and of a sensible length,
and is no measurement for a board. With one rank nothing crosses a link.

{gpu}, torch {torch}, NCCL {nccl}, Python {python}. {summary}

Made by, on a machine with that GPU and torch alone:

    python -m benchmarks.gpu.suite_world_size_1 --json docs/data/{file}
    python -m benchmarks.gpu.suite_table docs/data/{file} > docs/suite_on_gpu.md

"Error" is the largest error in units of the tolerance: up to 1 passes.

"""
HEADINGS = (">id", "problem", "outcome", ">error", ">time of a call", ">peak memory", "remark")


def main() -> None:
    path = Path(sys.argv[1])
    measured: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    counts = Counter(row["outcome"] for row in measured["rows"])
    summary = (
        f"{len(measured['rows'])} problems: " + ", ".join(f"{n} {outcome}" for outcome, n in counts.most_common()) + "."
    )
    print(INTRODUCTION.format(**measured["versions"], summary=summary, file=path.name), end="")
    print(table(HEADINGS, map(cells, measured["rows"])), end="")


def cells(row: dict[str, Any]) -> list[object]:
    """What the table says of a problem."""
    error = f"{row['error_of_tolerance']:.2f}" if "error_of_tolerance" in row else ""
    call = f"{row['milliseconds']:.3f} ms" if "milliseconds" in row else ""
    memory = f"{row['peak_MiB']} MiB" if "peak_MiB" in row else ""
    return [row["id"], row["slug"], row["outcome"], error, call, memory, row.get("why", "")]


if __name__ == "__main__":
    main()
