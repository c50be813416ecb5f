"""From trouble in a launch to a fault that helps: who failed first, how, and where every other rank stood."""

from __future__ import annotations

import logging
import signal
import time

from evaluator.contract import Code, Phase
from evaluator.judge import needs
from evaluator.judge.endpoint import Endpoint
from evaluator.judge.exchange import Exchange, Trouble
from evaluator.judge.faults import Fault, HarnessFault, RankState, shorten_paths, where
from evaluator.judge.frames import Error

log = logging.getLogger(__name__)

OTHERS_SECONDS = 0.4  # for errors of other ranks that follow from the first
EXIT_SECONDS = 2.0  # for the exit status of a rank whose channel has closed
DUMP_SECONDS = 0.4
CPU_SECONDS = 0.5  # over which the use of the CPU is measured
BUSY = 0.2  # share of one CPU above which a job counts as computing

READ_ONLY, NO_ACCESS, NOT_PERMITTED = 30, 13, 1
NETWORK_ERRNOS = {-5, -3, -2, 97, 99, 100, 101, 111, 113}  # of getaddrinfo and connect without a network
_NETWORK_WORDS = ("name or service not known", "temporary failure in name resolution", "network is unreachable")

_CODES = {Phase.COMPILE: Code.COMPILE_ERROR, Phase.IMPORT: Code.IMPORT_ERROR, Phase.READY: Code.IMPORT_ERROR}
_STEPS = {Phase.COMPILE: "compiling the file", Phase.IMPORT: "importing the file", Phase.READY: "finding solution"}
_DOING = {phase: f"while {step}" for phase, step in _STEPS.items()}

_HINT_FILES = (
    "Files are read-only for a submission except below /tmp and /dev/shm, which are private to the job and emptied "
    "before each launch."
)
_HINT_NETWORK = "There is no network: only the loopback interface exists, for the process group of the ranks."
_MEMORY_WORDS = ("can't allocate memory", "not enough memory", "cannot allocate memory", "out of memory")


def fault_of(trouble: Trouble) -> Exception:
    """The fault behind the trouble: a Fault of the candidate; a HarnessFault where no foreign code can be the cause."""
    launch = trouble.launch
    if not trouble.foreign and launch.number == 1:
        log.error("ranks of the %s: %s: %s", launch.arm.name, trouble.kind, _first_words(launch))
        return HarnessFault(f"The ranks of the {launch.arm.name} could not be started; the judge's log says more.")
    fault = _fault(launch, trouble) if trouble.foreign else _not_again(launch)
    violation = launch.arm.sandbox.violation
    if violation is not None and "memory" in violation.kind:
        fault = Fault(Code.OUT_OF_MEMORY, violation.sentence, normalised=f"limit {violation.kind}")
    fault.ranks = [_state(end, log) for end, log in zip(launch.ends, launch.logs(), strict=True)]
    return launch.arm.blame(fault)


def _not_again(launch: Exchange) -> Fault:
    """Ranks that started once and do not start again: what ran in between has seen to that."""
    log.warning("ranks could not be started again: %s", _first_words(launch))
    return Fault(Code.RUNTIME_ERROR, "After the first launch of its ranks the submission could not be launched again.")


def _fault(launch: Exchange, trouble: Trouble) -> Fault:
    if trouble.first is not None:
        launch.ends[trouble.first].state.primary = True
    match trouble.kind:
        case "failed":
            assert trouble.first is not None
            return _failed(launch, launch.ends[trouble.first], trouble.phase)
        case "stuck":
            return _stuck(launch, trouble.phase, trouble.seconds)
        case "protocol":
            who = "A process of the submission" if trouble.first is None else f"Rank {trouble.first}"
            return Fault(
                Code.INTEGRITY, f"{who} sent the judge a message that the runner never sends: {trouble.detail}."
            )
        case _:
            return launch.arm.loss()


def _failed(launch: Exchange, end: Endpoint, phase: Phase) -> Fault:
    """A rank raised or ended. Its peers mostly wait for it now, so they are asked where they stand."""
    launch.thaw()
    launch.collect(OTHERS_SECONDS, phase)
    if any(other.closed and other.status is None for other in launch.ends):
        launch.collect(EXIT_SECONDS, phase, until="exits")
    # A process that ends breaks its connections, which its peers may report before its end is seen.
    ended = [other for other in launch.ends if other.closed or other.status is not None]
    if ended and end not in ended:
        end.state.primary = False
        end = ended[0]
        end.state.primary = True
    _dump(launch, phase)
    if end.error is not None:
        return _raised(end, end.error, phase)
    if launch.lost:
        return launch.arm.loss()
    doing = _DOING.get(phase, "before its call had returned")
    return Fault(
        _CODES.get(phase, Code.RUNTIME_ERROR),
        f"Rank {end.rank} {_ending(end.status)} {doing}.",
        normalised=f"{_ending(end.status)} {phase}",
    )


def _ending(status: int | None) -> str:
    if status is None:
        return "closed its connection to the judge"
    if status < 0:
        return f"was ended by {_signal_name(-status)}"
    return f"ended its process with exit status {status}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _raised(end: Endpoint, error: Error, phase: Phase) -> Fault:
    first_line = error.message.strip().partition("\n")[0]
    said = f"{error.type}: {first_line}" if first_line else error.type
    if error.type == "MemoryError" or any(words in error.message.lower() for words in _MEMORY_WORDS):
        code = Code.OUT_OF_MEMORY
    elif (meaning := needs.meaning_of(error.message)) is not None:
        code = meaning.code
    else:
        code = _CODES.get(phase, Code.RUNTIME_ERROR)
    if error.type == "Unusable":
        return Fault(code, shorten_paths(f"The file cannot be called: {first_line}."))
    verb = _STEPS.get(phase, "solution")
    message = shorten_paths(f"Rank {end.rank} failed in {verb}: {said}"[:900])
    return Fault(code, message, hints=_hints(error), normalised=shorten_paths(said))


def _hints(error: Error) -> tuple[str, ...]:
    if error.errno in (READ_ONLY, NO_ACCESS, NOT_PERMITTED):
        return (_HINT_FILES,)
    if error.errno in NETWORK_ERRNOS or any(words in error.message.lower() for words in _NETWORK_WORDS):
        return (_HINT_NETWORK,)
    if sentence := needs.import_sentence(error.message):
        return (sentence,)
    meaning = needs.meaning_of(error.message)
    return (meaning.hint,) if meaning is not None else ()


def _stuck(launch: Exchange, phase: Phase, seconds: float) -> Fault:
    """No answer in time. Who burns CPU is still computing; where nobody does, the ranks wait for each other."""
    launch.thaw()
    before, started = launch.arm.sandbox.cpu_seconds(), time.monotonic()
    _dump(launch, phase)
    launch.collect(max(0.0, started + CPU_SECONDS - time.monotonic()), phase)  # a rank that prints must not be blocked
    after, elapsed = launch.arm.sandbox.cpu_seconds(), time.monotonic() - started
    used = sum(max(0.0, value - before[pid]) for pid, value in after.items() if pid in before)
    computing = used > BUSY * elapsed
    what = _STEPS.get(phase, "a call")
    table = _table(launch)
    if phase is Phase.PROBES:
        verdict = "it had ended in the trials, so the ranks wait for something that never comes now"
    elif computing:
        verdict = "the ranks were still computing"
    else:
        verdict = "nobody was computing: they wait for something that never comes"
    slow = computing and phase is not Phase.PROBES  # what spins in a probe has been quick before
    return Fault(
        Code.TOO_SLOW if slow else Code.DEADLOCK,
        f"{what.capitalize()} did not end within {seconds:.0f} s; {verdict}. {table}"[:1_000],
        hints=_waiting_hints(launch, computing=computing, probing=phase is Phase.PROBES),
        normalised=f"{phase} {computing} {table}",
    )


def _waiting_hints(launch: Exchange, *, computing: bool, probing: bool) -> tuple[str, ...]:
    if probing:
        return (
            "In calls back to back a rank may be one call ahead of its peers: flags and counters must tell one call "
            "from the next, and must not be taken back before every peer has seen them.",
        )
    returned = [end.rank for end in launch.ends if end.answered]
    if computing or not returned:
        return ()
    return (f"{_named(returned)} returned without taking part in what the others wait for.",)


def _table(launch: Exchange) -> str:
    """Where each rank stood, ranks at one place together."""
    places: dict[str, list[int]] = {}
    for end in launch.ends:
        place = (
            "has returned"
            if end.answered
            else f"stood at {end.state.line}"
            if end.state.line
            else "did not say where it was"
        )
        places.setdefault(place, []).append(end.rank)
    return "; ".join(f"{_named(ranks)} {place}" for place, ranks in places.items()) + "."


def _named(ranks: list[int]) -> str:
    return f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {', '.join(map(str, ranks))}"


def _dump(launch: Exchange, phase: Phase) -> None:
    """Asks every living rank for its stacks and reads them."""
    if all(end.failed or end.answered for end in launch.ends):
        return
    try:
        launch.arm.command({"do": "dump"})
    except (Fault, HarnessFault):
        return  # the fork server is gone: the fault at hand is already that of a rank
    launch.collect(DUMP_SECONDS, phase)
    for end in launch.ends:
        if not end.answered:
            end.state.line = where(end.dump_text.decode("utf-8", "replace"))


def _state(end: Endpoint, log: str) -> RankState:
    end.state.log = log
    if end.error is not None:
        end.state.error = shorten_paths(end.error.traceback)
    elif end.status is not None or end.closed:
        end.state.error = f"The process {_ending(end.status)}."
    return end.state


def _first_words(launch: Exchange) -> str:
    """What the ranks said when they could not be started, for our own log."""
    launch.collect(1.0, Phase.COMPILE)
    errors = [end.error.traceback for end in launch.ends if end.error is not None]
    return (errors or [launch.arm.sandbox.output()])[0][-600:]
