"""Compares references with themselves (A/A) and with themselves slowed by a known factor, with the judge's rule.

    python -m benchmarks.aa --json FILE [--seconds 3600] [--rows 300] [--settings 1/2 13/4 ...]
    python -m benchmarks.aa --json FILE --effects                                known effects, on either arm in turn
    python -m benchmarks.aa --json FILE --target h200x1 --settings 1/1 13/1     on a GPU, in bf16

Each comparison is appended to FILE as one JSON line with all its samples, so a run that was cut off goes on where it
was. A known effect is what the last A/A comparison of the same setting in FILE reported as the smallest it could have
found, and lasts a share of the time that the reference took there: run A/A first, on the same host. (A FILE of another
host makes other effects than it says.) ``benchmarks.aa_table`` makes the tables of docs/measurement.md of it. A
comparison takes 8 to 80 s on two cores.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.comparing import Effect, Setting, compare

SETTINGS = ("1/2", "13/4", "36/2", "1/4", "13/2", "27/4", "73/2", "2/4", "1/2s", "13/4s", "2/2s", "36/4s")
"""Problem id / world size, s for the small shape: calls of 0.3 to 10 ms on two cores, collectives and products."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=3_600, help="start no comparison after this many seconds")
    parser.add_argument("--rows", type=int, default=300, help="stop when the file has so many rows of this effect")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), help="problem id / world size")
    parser.add_argument("--target", default="cpu-gloo")
    parser.add_argument("--effects", action="store_true", help="known effects instead of A/A")
    options = parser.parse_args()
    settings = [Setting.parse(text, options.target) for text in options.settings]
    arms = ("candidate", "reference") if options.effects else ("",)
    done = Counter((row["setting"], row["slower"]) for row in rows(options.json))
    deadline = time.monotonic() + options.seconds
    wanted = [(setting, arm) for setting in settings for arm in arms]
    while time.monotonic() < deadline:
        counts = {(s, arm): done[s.label, arm] for s, arm in wanted}
        if sum(counts.values()) >= options.rows:
            break
        setting, arm = min(wanted, key=counts.__getitem__)
        effect = detectable(options.json, setting, arm) if arm else Effect()
        row = compare(setting, effect)
        done[setting.label, arm] += 1
        with options.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
        shown = [row.get(name) for name in ("decision", "estimate", "smallest_detectable", "reference_us", "seconds")]
        print(setting.label, effect.slower or "A/A", *shown, f"{len(row['void'])} void", flush=True)


def detectable(path: Path, setting: Setting, arm: str) -> Effect:
    """The smallest effect that the last A/A comparison of a setting could have found, on one arm. Raises SystemExit."""
    known = [row for row in rows(path) if not row["slower"] and "smallest_detectable" in row]
    known = [row for row in known if row["setting"] == setting.label]
    if not known:
        raise SystemExit(f"{path} has no A/A comparison of {setting.label} yet; run without --effects first.")
    share = float(known[-1]["smallest_detectable"]) - 1
    return Effect(share, arm, share * known[-1]["reference_us"] / 1e6)


def rows(path: Path) -> list[dict[str, Any]]:
    """Comparisons that a file holds; none if it is not there yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
