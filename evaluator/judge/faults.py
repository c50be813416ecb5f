"""How things go wrong: a fault of the candidate, a fault of ours, and the short id by which a fault is known again."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field

from evaluator.contract import MAX_SENTENCE, MAX_TEXT, Code, Phase, RankResult

SUBMISSION = "/submission/solution.py"
"""Where every submission lies inside its sandbox."""


@dataclass
class RankState:
    """What is known of one rank; becomes the report's RankResult."""

    rank: int
    reached: Phase = Phase.READY
    error: str = ""
    primary: bool = False
    line: str = ""
    max_error: float | None = None
    bad_fraction: float | None = None
    pattern: str = ""
    log: str = ""

    def result(self) -> RankResult:
        return RankResult(
            rank=self.rank,
            reached=self.reached,
            error=self.error[-MAX_TEXT:],
            primary=self.primary,
            line=clip(self.line),
            max_error=self.max_error,
            bad_fraction=self.bad_fraction,
            pattern=clip(self.pattern),
            log=self.log[-MAX_TEXT:],
        )


@dataclass
class Fault(Exception):
    """The candidate failed: which code, why in one sentence, and what each rank did."""

    code: Code
    message: str
    hints: tuple[str, ...] = ()
    ranks: list[RankState] = field(default_factory=list)
    normalised: str = ""
    """What ``failure_id`` is made of where the message holds more than the kind of failure; empty: the message."""

    def __str__(self) -> str:
        return self.message

    @property
    def failure_id(self) -> str:
        return failure_id(self.code, self.normalised or self.message)


_PLACE = re.compile(rf"[\w./-]*{re.escape(SUBMISSION)}")  # below a folder of its own where there is no sandbox


class HarnessFault(Exception):
    """We failed, or this host did: nothing that counts against a submission. The text is a sentence for people."""


def failure_id(code: Code, text: str) -> str:
    """The same failure always under the same id: hash of code and text without addresses and numbers."""
    text = re.sub(r"0x[0-9a-fA-F]+", "0x", text)
    text = re.sub(r"[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)?", "#", text)
    return hashlib.sha256(f"{code}\n{' '.join(text.split())}".encode()).hexdigest()[:12]


def shorten_paths(text: str) -> str:
    """Tracebacks without the places of this host: the submission by name, libraries from their package on."""
    text = _PLACE.sub("solution.py", text)
    return re.sub(r'"[^"\n]*/(?:site-packages|python3\.\d+)/', '"', text)


def clip(text: str) -> str:
    """The text as a Sentence of the contract."""
    return text if len(text) <= MAX_SENTENCE else text[: MAX_SENTENCE - 1] + "…"


_FRAME = re.compile(r'^  File "(?P<file>[^"\n]*)", line (?P<line>\d+) in (?P<function>.*)$', re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) 0x[0-9a-f]+.*$", re.MULTILINE)


def where(dump: str) -> str:
    """Where a rank stood by its faulthandler dump: "solution.py:9 in solution, in all_reduce (distributed_c10d.py:30)".

    The thread that runs the submission's call is the one whose stack holds this runner; if none does (the dump shows
    the innermost hundred frames), the last one with the submission in it. Empty if there is none either.
    """
    stacks = [[match.groupdict() for match in _FRAME.finditer(stack)] for stack in _THREAD.split(dump)[1:]]
    theirs = [frames for frames in stacks if any(frame["file"].endswith(SUBMISSION) for frame in frames)]
    ours = [frames for frames in stacks if any(frame["file"].endswith("/runner/rank.py") for frame in frames)]
    frames = (ours or theirs or [[]])[-1]
    own = next((frame for frame in frames if frame["file"].endswith(SUBMISSION)), None)
    if own is None:
        return ""
    innermost = frames[0]
    text = f"solution.py:{own['line']} in {own['function']}"
    if innermost is not own:
        text += f", in {innermost['function']} ({innermost['file'].rpartition('/')[2]}:{innermost['line']})"
    return clip(text)
