"""Recomputes every figure of a leaderboard from its JSON export, with nothing but the standard library.

    python scripts/recompute.py leaderboard.json

Written from docs/methodology alone and sharing no code with the site. Prints what differs and exits with 1, or says how
many figures are equal to the last digit.
"""

from __future__ import annotations

import json
import random
import sys
from math import comb, exp, fsum, log, prod, sqrt
from pathlib import Path
from statistics import NormalDist
from typing import Any

Z = NormalDist().inv_cdf(0.975)
LEVELS = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)


def geomean(ratios: list[float]) -> float | None:
    return exp(fsum(map(log, ratios)) / len(ratios)) if ratios else None


def faster(o: dict[str, Any], p: float = 1.0) -> bool:
    """Correct and faster than p times the baseline: at 1 the judge's decision, elsewhere the interval's lower end."""
    decided = o["counts"] and o["decision"] == "faster"
    above = o["counts"] and o["low"] is not None and o["low"] > p
    return bool(decided if p == 1 else decided and above if p > 1 else decided or above)


def figures(outcomes: list[dict[str, Any]], n: int) -> dict[str, Any]:
    correct = [o for o in outcomes if o["counts"]]
    gains = [log(o["speedup"]) for o in outcomes if faster(o)]
    return {
        "problems": n,
        "correct": len(correct),
        "faster": len(gains),
        "correctness_rate": len(correct) / n,
        "fast_1": len(gains) / n,
        "speedup": exp(fsum(gains) / n),
        "speedup_correct_only": geomean([o["speedup"] for o in correct if o["speedup"] is not None]),
        "utilisation": geomean([o["utilisation"] for o in correct if o["utilisation"]]),
    }


def wilson(correct: int, n: int) -> tuple[float, float]:
    share = correct / n
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z * sqrt(share * (1 - share) / n + Z * Z / (4 * n * n)) / (1 + Z * Z / n)
    return (0.0 if correct == 0 else max(0.0, centre - half), 1.0 if correct == n else min(1.0, centre + half))


def bootstrap(outcomes: list[dict[str, Any]], n: int) -> tuple[float, float]:
    logs = [log(o["speedup"]) if faster(o) else 0.0 for o in outcomes] + [0.0] * (n - len(outcomes))
    if not any(logs):
        return 1.0, 1.0
    chance = random.Random(0)
    means = sorted(fsum(chance.choices(logs, k=n)) / n for _ in range(1000))
    return exp(means[25]), exp(means[-26])


def at_k(outcomes: list[dict[str, Any]], good: str, n: int) -> dict[str, float]:
    """Mean over problems of 1 - C(n-c, k) / C(n, k)."""
    counts = [(o["samples"], o[good]) for o in outcomes if o["samples"]]
    least = min((samples for samples, _ in counts), default=0)
    levels = sorted({k for k in (1, 2, 5, 10, 20, 50, 100, least) if 0 < k <= least})
    one = lambda m, c, k: 1.0 if m - c < k else 1.0 - prod(1.0 - k / i for i in range(m - c + 1, m + 1))  # noqa: E731
    return {str(k): sum(one(m, c, k) for m, c in counts) / n for k in levels}


def mcnemar(b: int, c: int) -> float:
    return min(1.0, 2 * sum(comb(b + c, i) for i in range(min(b, c) + 1)) / 2 ** (b + c))


def row_figures(row: dict[str, Any], problems: list[dict[str, Any]], scope: set[int]) -> dict[str, Any]:
    whole = len(scope) == len(problems)
    outcomes = [o for o in row["outcomes"] if o["problem"] in scope]
    n = len(scope)
    found = figures(outcomes, n)
    found["correctness_low"], found["correctness_high"] = wilson(found["correct"], n)
    found["speedup_low"], found["speedup_high"] = bootstrap(outcomes, n) if whole else (None, None)
    ratios = [o["compatible_speedup"] for o in outcomes if o["compatible_correct"] and o["compatible_speedup"]]
    found["compatible_correct"] = sum(o["compatible_correct"] for o in outcomes)
    found["compatible_faster"] = sum(ratio > 1 for ratio in ratios)
    found["compatible_speedup"] = geomean(ratios)
    every = row["outcomes"]
    found["fast_p"] = [[p, sum(faster(o, p) for o in every) / len(problems)] for p in LEVELS]
    several = row["track"] == "multi-sample"
    found["pass_at_k"] = at_k(every, "correct_samples", len(problems)) if several else {}
    found["fast_1_at_k"] = at_k(every, "faster_samples", len(problems)) if several else {}
    for key, of in (
        ("by_primary_type", lambda p: [p["type"]]),
        ("by_every_type", lambda p: [p["type"], *p["also"]]),
    ):
        found[key] = []
        for name in sorted({name for p in problems for name in of(p)}):
            members = {p["number"] for p in problems if name in of(p)}
            part = figures([o for o in every if o["problem"] in members], len(members))
            found[key].append({"type": name, **part})
    return found


def places(rows: list[dict[str, Any]], scope: set[int]) -> dict[str, tuple[int, int, int]]:
    """Rank and range of each row that is no baseline, by its evaluation."""
    order = sorted(rows, key=lambda r: (-r["correctness_rate"], -r["fast_1"], -r["speedup"], r["submitted_at"]))
    solved = {r["evaluation"]: {o["problem"] for o in r["outcomes"] if o["counts"]} & scope for r in rows}
    found: dict[str, tuple[int, int, int]] = {}
    for row in order:
        key = (row["correctness_rate"], row["fast_1"], row["speedup"])
        rank = 1 + sum((o["correctness_rate"], o["fast_1"], o["speedup"]) > key for o in rows)
        mine, better, worse = solved[row["evaluation"]], 0, 0
        for other in solved.values():
            gained, lost = len(other - mine), len(mine - other)
            if mcnemar(gained, lost) < 0.05:
                better, worse = better + (gained > lost), worse + (lost > gained)
        found[row["evaluation"]] = rank, min(rank, 1 + better), max(rank, len(rows) - worse)
    return found


def differences(export: dict[str, Any]) -> tuple[int, list[str]]:
    """How many figures were compared, and a line for each that is not equal."""
    problems, scope = export["problems"], set(export["scope"])
    ranked = [row for row in export["rows"] if not row["baseline"]]
    ranks, compared, found = places(ranked, scope), 0, []
    for row in export["rows"]:
        rank = ranks.get(row["evaluation"], (None, None, None))
        wanted = {
            **row_figures(row, problems, scope),
            **dict(zip(("rank", "rank_low", "rank_high"), rank, strict=True)),
        }
        for name, value in wanted.items():
            compared += 1
            if row[name] != value:
                found.append(f"{row['model']} {row['evaluation']}: {name} is {row[name]!r}, recomputed {value!r}")
    return compared, found


def main() -> int:
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        board = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
        compared, found = differences(board)
    except (OSError, ValueError) as error:
        print(f"{sys.argv[1]} cannot be read as a board's JSON: {error}", file=sys.stderr)
        return 2
    except (KeyError, TypeError) as error:
        print(f"{sys.argv[1]} is no export of a board: {error!r} in it", file=sys.stderr)
        return 2
    print("\n".join(found) or f"All {compared} figures are equal to the last digit.")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
