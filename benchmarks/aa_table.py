"""Makes the tables of docs/measurement.md of what ``benchmarks.aa`` has measured.

    python -m benchmarks.aa_table FILE [--data docs/data/aa_cpu_gloo.json] [--resamples 2000]

All decisions are those of the present rule on the recorded pairs. Resampled comparisons draw 20 pairs with replacement
from all recorded pairs of a setting, give the arms' names to either side by chance (in A/A they mean nothing, and a
small pool's mean is not zero), and replay the rule. They say what the rule does with noise as it really is, but they
are not new measurements, and tables keep them apart. ``--data`` writes block values of all pairs without the samples.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from evaluator.contract import Decision
from evaluator.judge.statistics import BLOCK_RULES, LOOKS, Look, incomplete_beta, median, replay
from evaluator.targets import target

Row = dict[str, Any]
Pair = tuple[float, float]
"""Log-ratio of the values and of the medians of a pair's blocks."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--data", type=Path, help="write a compact copy there")
    parser.add_argument("--resamples", type=int, default=2_000, help="of each setting")
    options = parser.parse_args()
    rows = [compact(json.loads(line)) for line in options.file.read_text(encoding="utf-8").splitlines()]
    if options.data:
        lines = ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows)
        options.data.write_text(f"[\n{lines}\n]\n", encoding="utf-8")
    alike = [row for row in rows if not row["slower"]]
    print(
        noise(alike), false_verdicts(alike, options.resamples), effects(rows, options.resamples), drift(alike), sep="\n"
    )


def compact(row: Row) -> Row:
    """The row with values and medians of its blocks (microseconds) in place of the samples."""
    if any(isinstance(pair, list) for name in ("pairs", "void") for pair in row.get(name, [])):
        return row
    kept = {name: value for name, value in row.items() if name not in ("pairs", "void", "problem", "world_size")}
    of_block = BLOCK_RULES[target(row.get("target", "cpu-gloo")).device].value
    for name in ("pairs", "void"):
        kept[name] = [
            [round(rule(pair[arm]), 1) for rule in (of_block, median) for arm in ("reference", "candidate")]
            for pair in row.get(name, [])
        ]
    if row["decision"] != "none":
        ratios, medians = zip(*pairs_of(kept), strict=True)
        kept["decision"] = str(replay(ratios, medians)[0])
        kept["smallest_detectable"] = round(Look.at(ratios).smallest_detectable(LOOKS[-1]), 4)
    return kept


def pairs_of(row: Row) -> list[Pair]:
    return [(math.log(r / c), math.log(rm / cm)) for r, c, rm, cm in row["pairs"]]


def by_setting(rows: Sequence[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["setting"]].append(row)
    return dict(sorted(groups.items(), key=lambda item: (int(item[0].partition("/")[0]), item[0])))


def limits(hits: int, trials: int) -> tuple[float, float]:
    """Clopper-Pearson limits of a rate, 95 % on two sides."""

    def solve(a: float, b: float, probability: float) -> float:
        low, high = 0.0, 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if incomplete_beta(a, b, middle) < probability else (low, middle)
        return (low + high) / 2

    lower = 0.0 if hits == 0 else solve(hits, trials - hits + 1, 0.025)
    upper = 1.0 if hits == trials else solve(hits + 1, trials - hits, 0.975)
    return lower, upper


def noise(rows: Sequence[Row]) -> str:
    """Per setting: how long a call takes, how much pairs spread, what could have been found."""
    lines = ["| setting | comparisons | time of a call | sd of a pair | void pairs | smallest detectable |"]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    for setting, group in by_setting(rows).items():
        ratios = [ratio for row in group for ratio, _ in pairs_of(row)]
        times = [row["reference_us"] / 1e3 for row in group if "reference_us" in row]
        found = [row["smallest_detectable"] for row in group if "smallest_detectable" in row]
        if len(ratios) < 2:
            continue
        void = sum(len(row["void"]) for row in group)
        lines.append(
            f"| {setting} | {len(group)} | {min(times):.2f} to {max(times):.2f} ms | {statistics.pstdev(ratios):.1%} "
            f"| {void} of {void + len(ratios)} | {statistics.median(found):.2f} |"
        )
    return "\n".join([*lines, ""])


def false_verdicts(rows: Sequence[Row], resamples: int) -> str:
    """How often a program was called faster or slower than itself."""
    lines = ["| | comparisons | faster | slower | tie | undecided | rate of false `faster`, 95 % limits |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    lines.append(_counted("measured", Counter(row["decision"] for row in rows)))
    resampled = Counter(
        replay([r for r, _ in drawn], [m for _, m in drawn])[0] for _, drawn in redrawn(rows, resamples)
    )
    lines.append(_counted("resampled from their pairs", resampled))
    return "\n".join([*lines, "", between(rows), ""])


def redrawn(rows: Sequence[Row], resamples: int) -> Iterator[tuple[list[Pair], list[Pair]]]:
    """Two resampled comparisons of one setting at a time, 20 pairs each; settings with fewer pairs are left out."""
    chance = random.Random(20261201)
    for group in by_setting(rows).values():
        pool = [pair for row in group for pair in pairs_of(row)]
        for _ in range(resamples if len(pool) >= LOOKS[-1] else 0):
            first, second = (
                [(sign * r, sign * m) for r, m in chance.choices(pool, k=LOOKS[-1]) for sign in chance.choices((1, -1))]
                for _ in range(2)
            )
            yield first, second


def _counted(name: str, counts: Counter[str]) -> str:
    decided = sum(number for decision, number in counts.items() if decision != "none")
    low, high = limits(counts["faster"], decided) if decided else (0.0, 1.0)
    rate = counts["faster"] / decided if decided else 0.0
    return (
        f"| {name} | {sum(counts.values())} | {counts['faster']} | {counts['slower']} | {counts['tie']} "
        f"| {counts['none']} | {rate:.2%} ({low:.2%} to {high:.2%}) |"
    )


def between(rows: Sequence[Row]) -> str:
    """Whether comparisons differ by more than their pairs explain (analysis of variance); 1 if they do not."""
    degrees, across, groups = 0, 0.0, 0
    for row in rows:
        ratios = [ratio for ratio, _ in pairs_of(row)]
        if len(ratios) < LOOKS[0]:
            continue
        variance = statistics.variance(ratios)
        if variance > 0:
            across += statistics.fmean(ratios) ** 2 / (variance / len(ratios))
            groups += 1
            degrees += len(ratios) - 1
    if not groups:
        return ""
    mean = degrees / groups
    expected = mean / (mean - 2) if mean > 2 else math.nan
    ratios = [ratio for row in rows for ratio, _ in pairs_of(row)]
    error = statistics.stdev(ratios) / math.sqrt(len(ratios))
    return (
        f"Mean log-ratio over all {len(ratios)} pairs: {statistics.fmean(ratios):+.4f}, standard error {error:.4f}. "
        f"Mean square of the comparisons' means in units of their own pairs' variance: {across / groups:.2f}; "
        f"{expected:.2f} is expected where comparisons add no differences of their own."
    )


def effects(rows: Sequence[Row], resamples: int) -> str:
    """How often a known effect of the smallest detectable size was decided rightly.

    Resampled: what one comparison's pairs up to its last look report as the smallest detectable effect is added to the
    log-ratios of another.
    """
    lines = ["| known effect | comparisons | right | tie | wrong | undecided | rate of right decisions, 95 % limits |"]
    lines += ["| --- | --- | --- | --- | --- | --- | --- |"]
    for arm, right in (("reference", Decision.FASTER), ("candidate", Decision.SLOWER)):
        group = [row for row in rows if row["slower"] == arm]
        counts = Counter(row["decision"] for row in group)
        decided = len(group) - counts["none"]
        if not decided:
            continue
        low, high = limits(counts[right], decided)
        wrong = decided - counts[right] - counts["tie"]
        shares = [row["share"] for row in group]
        by = f"{min(shares):.0%} to {max(shares):.0%}"
        lines.append(
            f"| {arm} slowed by {by} | {len(group)} | {counts[right]} | {counts['tie']} "
            f"| {wrong} | {counts['none']} | {counts[right] / decided:.0%} ({low:.0%} to {high:.0%}) |"
        )
    resampled = Counter[str]()
    for first, second in redrawn([row for row in rows if not row["slower"]], resamples):
        _, looked_at = replay([r for r, _ in first], [m for _, m in first])
        look = Look.at([r for r, _ in first][:looked_at])
        effect = math.log(look.smallest_detectable(LOOKS[-1]))
        resampled[replay([r + effect for r, _ in second], [m + effect for _, m in second])[0]] += 1
    total = sum(resampled.values())
    if total:
        low, high = limits(resampled["faster"], total)
        lines.append(
            f"| resampled: effect added to A/A pairs | {total} | {resampled['faster']} | {resampled['tie']} "
            f"| {resampled['slower']} | 0 | {resampled['faster'] / total:.0%} ({low:.0%} to {high:.0%}) |"
        )
    return "\n".join([*lines, ""])


def drift(rows: Sequence[Row]) -> str:
    """What would happen if a reference's times were kept and used for a later comparison."""
    spread, verdicts = [], Counter[str]()
    for group in by_setting(rows).values():
        measured = [row for row in group if len(row["pairs"]) >= LOOKS[0]]
        if len(measured) < 2:
            continue
        spread.append(statistics.pstdev(math.log(row["reference_us"]) for row in measured))
        for one in measured:
            for other in measured:
                if one is other:
                    continue
                kept = [(r, rm) for r, _, rm, _ in other["pairs"]]
                ours = [(c, cm) for _, c, _, cm in one["pairs"]]
                ratios = [math.log(r / c) for (r, _), (c, _) in zip(kept, ours, strict=False)]
                medians = [math.log(r / c) for (_, r), (_, c) in zip(kept, ours, strict=False)]
                verdicts[replay(ratios, medians)[0]] += 1
    total = sum(verdicts.values())
    if not total:
        return ""
    return (
        f"Time of the reference from one comparison to another of the same setting: sd {statistics.median(spread):.0%} "
        f"(median over settings). With reference times kept from another comparison, {verdicts['faster'] / total:.0%} "
        f"of {total} combinations of a program with itself come out faster and {verdicts['slower'] / total:.0%} slower."
    )


if __name__ == "__main__":
    main()
