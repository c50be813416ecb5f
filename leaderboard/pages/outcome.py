"""The words and the tone for the state of one submission, wherever it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from evaluator.contract import Code, Decision, Phase
from leaderboard.figures import ratio_text
from leaderboard.models import Attempt, AttemptState, Standing, Verdict

CODE_TEXTS: dict[str, str] = {
    Code.CORRECT: "correct",
    Code.WRONG_VALUES: "wrong values",
    Code.IMPRECISE: "imprecise",
    Code.WRONG_STRUCTURE: "wrong structure",
    Code.INVALID_FILE: "invalid file",
    Code.COMPILE_ERROR: "compile error",
    Code.IMPORT_ERROR: "import or interface error",
    Code.RUNTIME_ERROR: "runtime error",
    Code.ILLEGAL_MEMORY_ACCESS: "illegal memory access",
    Code.OUT_OF_MEMORY: "out of memory",
    Code.DEADLOCK: "deadlock",
    Code.TOO_SLOW: "too slow",
    Code.RACE: "race",
    Code.IMPOSSIBLE_TIME: "impossible time",
    Code.INTEGRITY: "integrity",
    Code.NEEDS_MULTICAST: "needs multicast",
    Code.NEEDS_RUNTIME: "needs a runtime",
    Code.HARNESS_FAILURE: "our failure",
}
CODE_MEANINGS: dict[str, str] = {
    Code.CORRECT: "every rank delivered what was expected in every trial; a decision on speed follows",
    Code.WRONG_VALUES: "values differ from the expected ones beyond the tolerance",
    Code.IMPRECISE: "values differ as they do when a lower precision was used, not as when data is missing",
    Code.WRONG_STRUCTURE: "type, shape, dtype, device or layout differ, or an input was changed that must not be",
    Code.INVALID_FILE: "the file is no Python that defines `solution`",
    Code.COMPILE_ERROR: "the extension in the file does not compile",
    Code.IMPORT_ERROR: "importing the file fails, or `solution` has another signature",
    Code.RUNTIME_ERROR: "a rank raised an exception or ended",
    Code.ILLEGAL_MEMORY_ACCESS: "a kernel read or wrote memory that is not its own",
    Code.OUT_OF_MEMORY: "a rank needed more memory than there is",
    Code.DEADLOCK: "ranks wait for each other and none goes on",
    Code.TOO_SLOW: "a call did not end within its budget although the ranks still worked",
    Code.RACE: "the result changes from call to call beyond the tolerance",
    Code.IMPOSSIBLE_TIME: "faster than the roofline allows; held until a person has looked",
    Code.INTEGRITY: "the file tried to fool the judge; held until a person has looked",
    Code.NEEDS_MULTICAST: "needs in-switch multicast, which the target does not have; no fault of the file",
    Code.NEEDS_RUNTIME: "needs a runtime that the target does not have; no fault of the file",
    Code.HARNESS_FAILURE: "the judge failed, not the file; never counted",
}
STAGES: dict[str, str] = {
    Code.INVALID_FILE: "before it runs",
    Code.COMPILE_ERROR: "before it runs",
    Code.IMPORT_ERROR: "before it runs",
    Code.NEEDS_RUNTIME: "before it runs",
    Code.NEEDS_MULTICAST: "before it runs",
    Code.RUNTIME_ERROR: "while it runs",
    Code.ILLEGAL_MEMORY_ACCESS: "while it runs",
    Code.OUT_OF_MEMORY: "while it runs",
    Code.DEADLOCK: "while it runs",
    Code.TOO_SLOW: "while it runs",
    Code.WRONG_STRUCTURE: "in its result",
    Code.WRONG_VALUES: "in its result",
    Code.IMPRECISE: "in its result",
    Code.RACE: "in its result",
    Code.IMPOSSIBLE_TIME: "in its time",
    Code.INTEGRITY: "in its conduct",
    Code.HARNESS_FAILURE: "on our side",
}
PHASE_TEXTS: dict[str, str] = {
    Phase.STATIC: "static check",
    Phase.COMPILE: "compiling",
    Phase.IMPORT: "importing",
    Phase.READY: "starting ranks",
    Phase.TRIALS: "trials",
    Phase.TIMING: "timing",
    Phase.PROBES: "probes",
    Phase.CENSUS: "census",
}
NOT_THE_FILES_FAULT = {Code.HARNESS_FAILURE, Code.NEEDS_MULTICAST, Code.NEEDS_RUNTIME}


@dataclass(frozen=True)
class State:
    """``tone``: suffix of the style class s-…; ``sign`` says the same without colour; ``done`` of ``total`` steps."""

    text: str
    tone: str
    sign: str
    done: int = 0
    total: int = 0
    final: bool = False


@dataclass(frozen=True)
class Failures:
    """How many files fail with one code, and the stage that the code belongs to."""

    stage: str
    text: str
    number: int


def failures_by_phase(counts: Mapping[tuple[str, str], int]) -> list[tuple[str, str, int]]:
    """(phase, code, files) in the order in which a file meets them, from numbers by (phase, code) as stored."""
    phases, codes = [*PHASE_TEXTS, ""], list(STAGES)
    known = [pair for pair in counts if pair[1] in STAGES]
    known.sort(key=lambda pair: (phases.index(pair[0]) if pair[0] in phases else len(phases), codes.index(pair[1])))
    return [(PHASE_TEXTS.get(phase, STAGES[code]), CODE_TEXTS[code], counts[phase, code]) for phase, code in known]


def failures(counts: Mapping[str, int]) -> list[Failures]:
    """One line for each code but ``correct``, stage by stage in the order in which a file meets them."""
    order = list(STAGES)
    codes = sorted((code for code in counts if code in STAGES), key=order.index)
    return [Failures(STAGES[code], CODE_TEXTS[code], counts[code]) for code in codes]


WAITING = State("waiting", "calm", "·")


def of_verdict(verdict: Verdict) -> State:
    """'correct, 1.24× faster' with the tone of good, and so on."""
    text = CODE_TEXTS[verdict.code]
    if verdict.standing == Standing.HELD:
        return State(f"{text}, held for review", "warn", "‖", final=True)
    if verdict.standing == Standing.DISQUALIFIED:
        return State("disqualified", "bad", "✗", final=True)
    if verdict.standing == Standing.DUPLICATE:
        return State(f"{text}, duplicate of the baseline", "calm", "=", final=True)
    if verdict.code != Code.CORRECT:
        ours = verdict.code in NOT_THE_FILES_FAULT
        return State(text, "warn" if ours else "bad", "!" if ours else "✗", final=True)
    speed = {
        Decision.FASTER: f", faster {ratio_text(verdict.speedup)}",
        Decision.SLOWER: f", slower {ratio_text(verdict.speedup)}",
        Decision.TIE: f", tie {ratio_text(verdict.speedup)}",
        Decision.NONE: ", not timed",
    }[Decision(verdict.decision)]
    return State(text + speed, "good", "▲" if verdict.decision == Decision.FASTER else "✓", final=True)


def of_attempt(attempt: Attempt | None) -> State:
    """'queued', 'trials 3 of 5', 'timing'; a lost attempt is queued again, so it reads as waiting."""
    if attempt is None:
        return WAITING
    if attempt.state == AttemptState.LEASED:
        text = PHASE_TEXTS.get(attempt.phase, "started")
        if attempt.phase_total:
            text += f" {attempt.phase_done} of {attempt.phase_total}"
        return State(text, "busy", "→", attempt.phase_done, attempt.phase_total)
    if attempt.state == AttemptState.CANCELLED:
        return State("cancelled", "calm", "–", final=True)
    again = f" (delivery {attempt.number})" if attempt.number > 1 else ""
    return State(f"queued{again}", "calm", "·")
