"""Compares references with themselves (A/A) and with themselves behind a pause of known length, with the judge's rule.

    python -m benchmarks.aa --json FILE [--seconds 3600] [--rows 300] [--settings 1/2 13/4 ...]
    python -m benchmarks.aa --json FILE --share 0.1                      known effect of 10 %, on either arm in turn

Each comparison is appended to FILE as one JSON line with all its samples, so a run that was cut off goes on where it
was. ``benchmarks.aa_table`` makes the tables of docs/measurement.md of it. A comparison takes 8 to 30 s on two cores.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.comparing import Effect, Setting, compare

SETTINGS = ("1/2", "13/4", "2/4", "36/2", "1/4", "73/4", "13/2", "27/4")
"""Problem id / world size: calls of 0.5 to 10 ms on two cores, with collectives of four kinds and matrix products."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3_600, help="start no comparison after this many seconds")
    parser.add_argument("--rows", type=int, default=300, help="stop when the file has so many rows of this effect")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), help="problem id / world size")
    parser.add_argument("--share", type=float, default=0.0, help="pause as a share of the reference's time")
    options = parser.parse_args()
    settings = [Setting(*map(int, text.split("/"))) for text in options.settings]
    done = Counter(key(row) for row in rows(options.json))
    deadline = time.monotonic() + options.seconds
    while time.monotonic() < deadline:
        wanted = [(s, e) for s in settings for e in effects(options.share)]
        setting, effect = min(wanted, key=lambda pair: done[pair[0].label, pair[1].slower, pair[1].share])
        if sum(done[s.label, e.slower, e.share] for s, e in wanted) >= options.rows:
            break
        row = compare(setting, effect)
        done[key(row)] += 1
        with options.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        print(setting.label, effect.slower or "A/A", row["decision"], row["estimate"], row["smallest_detectable"],
              len(row["pairs"]), len(row["void"]), f"{row['reference_us']:.0f} µs", f"{row['seconds']} s", flush=True)


def effects(share: float) -> list[Effect]:
    """The effects that are tried in turn."""
    return [Effect(share, "candidate"), Effect(share, "reference")] if share else [Effect()]


def rows(path: Path) -> list[dict[str, Any]]:
    """Comparisons that a file holds; none if it is not there yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def key(row: dict[str, Any]) -> tuple[str, str, float]:
    return Setting(row["problem"], row["world_size"]).label, row["slower"], row["share"]


if __name__ == "__main__":
    main()
