"""A report as a readable page, and progress as lines, for people at a terminal."""

from __future__ import annotations

import sys

from evaluator.contract import PhaseStatus, Progress, Report

_MARKS = {PhaseStatus.PASSED: "passed", PhaseStatus.FAILED: "FAILED", PhaseStatus.SKIPPED: "-"}


def show_progress(progress: Progress) -> None:
    """One line a step on standard error."""
    count = f" {progress.done}/{progress.total}" if progress.total else ""
    print(f"  {progress.phase}{count} {progress.note}".rstrip(), file=sys.stderr, flush=True)


def page(report: Report) -> str:
    """The report for people: verdict, phases, cases, ranks, timing."""
    lines = [f"{report.code.upper()}  {report.message}", ""]
    lines += [f"  hint: {hint}" for hint in report.hints]
    lines += ["", "Phases"]
    for phase in report.phases:
        lines.append(f"  {phase.phase:<8} {_MARKS[phase.status]:<7} {phase.seconds:6.2f} s  {phase.detail}".rstrip())
    if report.cases:
        lines += ["", "Cases"]
        for case in report.cases:
            mark = "passed" if case.passed else "FAILED"
            lines.append(f"  {case.name:<16} {mark:<7} {case.property}{'; ' + case.message if case.message else ''}")
    lines += _ranks(report) + _timing(report)
    lines += _census(report)
    if report.mechanisms:
        lines += ["", "Mechanisms: " + ", ".join(report.mechanisms)]
    if report.isolation:
        lines += ["", f"Isolation: {report.isolation.mode}, uid {report.isolation.uid}"]
    overhead = report.seconds - report.scheduled_seconds
    scheduled = f"{report.scheduled_seconds:.1f} s calls and pauses"
    lines.append(f"{report.seconds:.1f} s in all, of which {scheduled}, {overhead:.1f} s overhead")
    return "\n".join(lines)


def _ranks(report: Report) -> list[str]:
    lines = ["", "Ranks"]
    for rank in report.ranks:
        parts = [f"  {rank.rank}{' *' if rank.primary else '  '} reached {rank.reached}"]
        if rank.max_error is not None:
            parts.append(f"largest error {rank.max_error:.3g} rms, {rank.bad_fraction or 0:.2%} bad")
        parts += [text for text in (rank.pattern, rank.line) if text]
        lines.append("; ".join(parts))
        lines += [f"      {line}" for line in rank.error.strip().splitlines()]
        lines += [f"    | {line}" for line in rank.log.strip().splitlines()[-20:]]
    return lines if report.ranks else []


def _census(report: Report) -> list[str]:
    lines = []
    if (census := report.census) is not None:
        shares = ", ".join(f"{part.origin} {part.share:.0%}" for part in census.origins)
        lines += ["", "Census", f"  {shares}; {census.per_call:.0f} {census.unit} per call and rank"]
        lines += [f"  {entry.seconds * 1e3:9.3f} ms  {entry.origin:<13} {entry.name}" for entry in census.entries[:8]]
    if report.profile is not None:
        lines += ["", "Profile", f"  {report.profile.reading}"]
    return lines


def _timing(report: Report) -> list[str]:
    timing, speedup = report.timing, report.speedup
    if timing is None or speedup is None:
        return []
    decision = timing.decision_interval
    lines = [
        "",
        "Timing",
        f"  {report.decision}: {speedup.estimate:.3f} (95 %: {speedup.low:.3f} to {speedup.high:.3f}; "
        f"decision at 99.75 %: {decision.low:.3f} to {decision.high:.3f})",
        f"  reference {timing.reference_seconds * 1e3:.3f} ms, submission {timing.candidate_seconds * 1e3:.3f} ms",
        f"  {len(timing.pairs)} pairs with {timing.calls_per_block} calls, {timing.looks} looks, "
        f"smallest speedup it could have found: {timing.smallest_detectable:.3f}",
    ]
    if timing.baseline_note:
        lines.append(f"  baseline {timing.baseline}: {timing.baseline_note}")
    if timing.throughput:
        back = timing.throughput
        ratio = back.reference_seconds / back.candidate_seconds if back.candidate_seconds else 0.0
        lines.append(f"  back to back, {back.calls} calls (PKB-compatible, decides nothing): {ratio:.3f}")
    if report.bound:
        bound = report.bound
        lines.append(
            f"  bounds by {bound.peaks} peaks: {bound.overlap_seconds * 1e3:.3f} ms with overlap, "
            f"{bound.serial_seconds * 1e3:.3f} ms without, limited by {bound.limited_by}"
            + (f", utilisation {bound.utilisation:.0%}" if bound.utilisation is not None else "")
        )
    return lines + [f"  {warning}" for warning in timing.warnings]
