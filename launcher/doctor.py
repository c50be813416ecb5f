"""Asks the evaluator's doctor, while the site starts, what this machine can evaluate."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from launcher import strays

ONLY_DEMONSTRATION = "PKB_ONLY_DEMONSTRATION"
PATIENCE = 180.0  # seconds; the examination starts a real sandbox and imports torch in it
TARGET = "cpu-gloo"


@dataclass(frozen=True)
class Verdict:
    """What to tell the user, and whether only the files that come with the project may run here."""

    lines: tuple[str, ...] = ()
    only_demonstration: bool = False


class Examination:
    """``python -m evaluator doctor --json`` as a process of its own, while other things are done."""

    def __init__(self, interpreter: Path, root: Path, mark: str) -> None:
        self._popen = subprocess.Popen(
            [str(interpreter), "-m", "evaluator", "doctor", "--json"],
            cwd=root,
            env={**os.environ, strays.MARK: mark},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Examination:
        return self

    def __exit__(self, *_: object) -> None:
        if self._popen.poll() is None:
            self._popen.kill()
        self._popen.__exit__(None, None, None)  # closes the pipes and waits

    def verdict(self) -> Verdict:
        """Wait for the doctor. Whatever it finds, the site starts: what cannot be evaluated here waits."""
        try:
            output, errors = self._popen.communicate(timeout=PATIENCE)
            return read(json.loads(output))
        except subprocess.TimeoutExpired:
            return Verdict((f"  doctor             no answer within {PATIENCE:.0f} s; evaluations may fail",))
        except ValueError:
            last = errors.strip().splitlines()[-1:] or ["no output"]
            return Verdict((f"  doctor             failed ({last[0]}); evaluations may fail",))


def read(diagnosis: dict[str, object]) -> Verdict:
    """What follows from the doctor's JSON.

    Without a sandbox foreign files are refused, because nothing would stand between them and the user's own. Any other
    thing that is missing only makes evaluations fail, and the doctor says what.
    """
    if diagnosis["can_evaluate"]:
        targets = diagnosis["targets"]
        assert isinstance(targets, list)
        return Verdict((f"  doctor             this machine can evaluate for {', '.join(targets)}",))
    findings = diagnosis["findings"]
    assert isinstance(findings, list)
    missing = [finding for finding in findings if finding["needed"] and not finding["ok"]]
    lines = ["  doctor             this machine cannot evaluate foreign files:"]
    for finding in missing:
        lines += [f"    {finding['name']}: {finding['sentence']}", f"    {finding['remedy']}"]
    only_demonstration = any(finding["name"] == "sandbox" for finding in missing)
    if only_demonstration:
        lines.append("    Until then only the demonstration files are evaluated (./run demo); others are refused.")
    return Verdict(tuple(lines), only_demonstration)
