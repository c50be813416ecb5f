"""What the commands print: one line per thing that is ready, and refusals that say what happened and what to do."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable


class Refusal(Exception):
    """A reason to stop that the user can do something about.

    ``remedy`` is the sentence that says what; ``evidence`` the last lines of whatever was said by the failed part.
    """

    def __init__(self, what: str, remedy: str, evidence: Iterable[str] = ()) -> None:
        super().__init__(what)
        self.what = what
        self.remedy = remedy
        self.evidence = tuple(evidence)


def say(text: str) -> None:
    print(text, flush=True)


def fail(refusal: Refusal) -> None:
    """Print a refusal on standard error."""
    lines = [f"Stopped: {refusal.what}"]
    if refusal.evidence:
        lines += ["It said last:", *(f"    {line.rstrip()}" for line in refusal.evidence)]
    lines.append(f"What to do: {refusal.remedy}")
    print("\n".join(lines), file=sys.stderr, flush=True)


class ProgressLine:
    """One line that is rewritten on a terminal; elsewhere a line now and then, so that a log shows that it goes on."""

    def __init__(self, label: str, every: float = 15.0) -> None:
        self.label = label
        self.every = every
        self.started = time.monotonic()
        self._printed = self.started
        self._terminal = sys.stdout.isatty()

    def show(self, text: str) -> None:
        now = time.monotonic()
        line = f"{self.label}: {text} ({now - self.started:.0f} s)"
        if self._terminal:
            print(f"\r\033[K{line[:110]}", end="", flush=True)
        elif now - self._printed >= self.every:
            self._printed = now
            say(line)

    def done(self, text: str) -> None:
        line = f"{self.label}: {text} ({time.monotonic() - self.started:.0f} s)"
        print(f"\r\033[K{line}" if self._terminal else line, flush=True)
