"""Which baseline the headline is against: the strongest of those that a target names and that run on this host.

The eager reference is always there. The others are the same reference under torch.compile, and under torch.compile with
the operators over symmetric memory that torch puts in by itself. A rival is measured against the eager reference with
the rule that also judges submissions, and takes its place only where that rule calls it faster. What is kept on the
host is this choice and nothing else: times are not (docs/measurement.md says how far they drift), so every submission
is still compared with a baseline that runs beside it.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evaluator.contract import MAX_SENTENCE, Decision, Interval, Timing
from evaluator.judge.faults import Fault, HarnessFault
from evaluator.judge.voids import Undecided
from evaluator.sandbox import SandboxUnavailable

BUDGET_SHARE = 0.4
"""Part of the timing budget that the choice may take per rival."""
TITLES = {"compile": "torch.compile", "symm_mem": "torch.compile with symmetric memory"}
_COMPILE = """

import torch as _torch
import torch._inductor.config as _inductor

_inductor.compile_threads = 1  # no pool of processes in a job that is stopped and started
"""
_SYMMETRIC = """_inductor._micro_pipeline_tp = True  # all-gather with matmul, matmul with reduce-scatter, in pieces
_inductor._collective.auto_select = True  # one-shot all-reduce where it is better
"""
_WRAP = "solution = _torch.compile(solution)\n"


@dataclass(frozen=True)
class Choice:
    """A baseline: its name, how much faster than the eager reference it was when it was chosen, and why it was."""

    name: str = "eager"
    eager_over_baseline: float | None = None
    note: str = ""

    def noted_in(self, measured: Timing) -> Timing:
        """The timing with the baseline that it is against."""
        return measured.model_copy(
            update={
                "baseline": self.name,
                "eager_over_baseline": self.eager_over_baseline,
                "baseline_note": self.note[:MAX_SENTENCE],
            }
        )


def source_of(name: str, source: str) -> str:
    """The reference's source as that baseline. Raises KeyError for a name that is none."""
    if name == "eager":
        return source
    return source + _COMPILE + {"compile": "", "symm_mem": _SYMMETRIC}[name] + _WRAP


def key(
    *, problem: str, target: str, world_size: int, precision: str, versions: Mapping[str, str], host: str = ""
) -> str:
    """What a choice holds for: the problem's version (with its shapes), target, ranks, software, and this host."""
    parts = [problem, target, world_size, precision, sorted(versions.items()), host or platform.node()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def strongest(names: Sequence[str], key: str, compare: Callable[[str], tuple[Interval, Decision]]) -> Choice:
    """The strongest of the baselines ``names``, from this host's record or by measurement.

    ``compare`` measures one against the eager reference. A baseline that fails is left out, with the reason in the
    note, and then nothing is recorded: it may run the next time.
    """
    file = folder() / f"{key}.json"
    known = _read(file)
    if known is not None and known.name in names:
        return known
    best, notes, whole = Choice("eager", 1.0), [], True
    for name in names:
        if name == "eager":
            continue
        try:
            interval, decision = compare(name)
        except (Fault, HarnessFault, Undecided, SandboxUnavailable) as reason:
            notes.append(f"{TITLES[name]} could not be used: {str(reason)[:200]}")
            whole = False
            continue
        notes.append(
            f"The eager reference takes {interval.estimate:.2f} times as long as under {TITLES[name]} "
            f"(95 % interval {interval.low:.2f} to {interval.high:.2f}): {decision}."
        )
        if decision is Decision.FASTER and interval.estimate > (best.eager_over_baseline or 1.0):
            best = Choice(name, interval.estimate)
    choice = Choice(best.name, best.eager_over_baseline, " ".join(notes))
    if whole:
        _write(file, choice)
    return choice


def folder() -> Path:
    """Where choices are kept on this host: nothing that runs in a sandbox sees it."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root) / "pkbsite" / "baselines"


def _read(file: Path) -> Choice | None:
    try:
        return Choice(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):  # not there, or cut off: it is measured again
        return None


def _write(file: Path, choice: Choice) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_suffix(f".{os.getpid()}")
    part.write_text(json.dumps(asdict(choice)), encoding="utf-8")
    part.replace(file)
