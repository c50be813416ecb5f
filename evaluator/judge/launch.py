"""One launch of an arm: W fresh rank processes, their channels and regions, and the calls made in them.

A call: the ranks build their arguments over a slot whose bytes are not there yet; the whole job is stopped; the judge
writes the arguments, poisons the output regions and sends the call; it takes the time, lets the job run, and at the
last rank's answer stops it and takes the time again. So nothing can look ahead, and what is not done by then was not
done in time. Correctness trials and timed calls go this way alike.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from evaluator.contract import Phase
from evaluator.judge.arm import Arm
from evaluator.judge.endpoint import Endpoint
from evaluator.judge.exchange import Exchange, Trouble
from evaluator.judge.frames import Done, Node, parse_structure
from evaluator.judge.layout import Encoded, Partition
from evaluator.runner.scramble import KEY_BITS, scramble
from evaluator.runner.wire import BadFrame

SETTLE_SECONDS = 0.05
"""How long the job runs on after a checked call before its outputs are read a second time."""


class Abandoned(Exception):
    """The judge ends a launch before its end for reasons of its own; the arm can be used for another one."""


@dataclass(frozen=True)
class Call:
    """One call: the judge's time for it, and what every rank says it returned."""

    seconds: float
    outputs: tuple[Node, ...]
    claimed: float | None = None
    """The longest time that a rank says it took."""
    skew: float = 0.0
    """From the first rank's answer to the last one's, by the judge's clock."""


class Launch(Exchange):
    """Rank processes of one launch. Use as a context manager: leaving kills them and gives the memory back.

    Trouble that leaves the block goes through ``diagnose`` first, while the processes can still be asked.
    """

    def __init__(
        self,
        arm: Arm,
        partitions: Sequence[Partition],
        *,
        source_bytes: int,
        target_bytes: int,
        diagnose: Callable[[Trouble], Exception],
    ) -> None:
        super().__init__(arm, partitions, source_bytes=source_bytes, target_bytes=target_bytes)
        self._diagnose = diagnose
        self.scheduled = 0.0
        self._watching = False
        self.meanwhile: Callable[[float], None] | None = None
        """Work of the judge's own for the pause of ``read_again``, which gets its seconds and must not take more."""

    # Steps of a launch.

    def initialise(self, seconds: float) -> None:
        """Waits until every rank has joined its process groups; no foreign code runs before that."""
        self._exchange("initialised", self._nonce, seconds, Phase.COMPILE)

    def compile_file(self, seconds: float) -> None:
        """Lets every rank compile the file, without running it."""
        self._everywhere({"do": "compile"}, "compiled", seconds, Phase.COMPILE)

    def import_file(self, seconds: float) -> None:
        """Lets every rank run the file as a module."""
        self._everywhere({"do": "import"}, "imported", seconds, Phase.IMPORT)

    def make_ready(self, arguments: Sequence[str], seconds: float) -> None:
        """Lets every rank find ``solution`` and try its signature on the arguments; then the job stands still."""
        self._everywhere({"do": "ready", "arguments": list(arguments)}, "ready", seconds, Phase.READY)
        self.freeze()

    def load(self, arguments: Sequence[str], seconds: float) -> None:
        """All steps from the fork to ranks that can be called, ``seconds`` for each."""
        self.initialise(seconds)
        self.compile_file(seconds)
        self.import_file(seconds)
        self.make_ready(arguments, seconds)

    def _everywhere(self, message: dict[str, object], answer: str, seconds: float, phase: Phase) -> None:
        self.foreign = True
        for end in self.ends:
            end.state.reached = phase
        self._exchange(answer, self._tell_all(message), seconds, phase)

    def call(self, arguments: Sequence[Encoded], start: int, *, perturb: int, seconds: float, phase: Phase) -> Call:
        """One call on the slot at ``start`` of every input region. ``perturb``: byte that fills fresh memory, or 0."""
        nonce = secrets.token_hex(8)
        for end, encoded in zip(self.ends, arguments, strict=True):
            end.state.reached = phase
            tree = encoded.placed(start)
            self._tell(end, {"do": "prepare", "nonce": nonce, "arguments": tree, "perturb": perturb})
        self.thaw()
        self._exchange("prepared", nonce, seconds, phase)
        self.freeze()
        for end, encoded in zip(self.ends, arguments, strict=True):
            encoded.write(end.source, start)
        do = "observe" if self._watching else "call"
        if not self.arm.hardware.mirrored:
            return self._timed({"do": do}, seconds, phase)
        slot, keys = self._hide(self.ends, arguments, start)
        self._load([slot], seconds, phase)
        return self._timed({"do": do, "slot": slot, "keys": keys}, seconds, phase)

    def watch(self, seconds: float, phase: Phase) -> None:
        """Lets every rank start its profiler: the calls that follow are recorded, and nobody times them."""
        nonce = self._tell_all({"do": "watch"})
        self.thaw()
        self._exchange("watching", nonce, seconds, phase)
        self.freeze()
        self._watching = True

    def records(self, seconds: float, phase: Phase) -> list[bytes]:
        """What the profiler of every rank has recorded since ``watch``, as the rank tells it."""
        nonce = self._tell_all({"do": "record"})
        self.thaw()
        self._exchange("recorded", nonce, seconds, phase)
        self.freeze()
        self._watching = False
        try:
            return [end.target.read_text() for end in self.ends]
        except BadFrame as error:
            raise Trouble(self, "protocol", phase, detail=str(error)) from error

    def _hide(self, ends: Sequence[Endpoint], arguments: Sequence[Encoded], start: int) -> tuple[list[int], list[int]]:
        """Makes what was just written unreadable until the keys are told; returns the slot and the keys."""
        keys = [secrets.randbits(KEY_BITS), secrets.randbits(KEY_BITS)]
        size = max(encoded.size for encoded in arguments)
        for end in ends:
            scramble(end.source.bytes[start : start + size], (keys[0], keys[1]))
        return [start, size], keys

    def _load(self, slots: Sequence[Sequence[int]], seconds: float, phase: Phase) -> None:
        """Lets every rank bring slots to its device, which takes longer than most calls; then the job stands still."""
        nonce = self._tell_all({"do": "load", "slots": [list(slot) for slot in slots]})
        self.thaw()
        self._exchange("loaded", nonce, seconds, phase)
        self.freeze()

    def start_call(self, end: Endpoint, arguments: Encoded, start: int, *, perturb: int) -> str:
        """Gives one rank its arguments and lets it call at once, whatever the others do; returns the call's nonce.

        For calls that nobody times: nothing is stopped. ``next_done`` has the answers.
        """
        arguments.write(end.source, start)
        end.target.bytes.fill_(secrets.randbits(8))
        tree = arguments.placed(start)
        self._tell(end, {"do": "prepare", "nonce": secrets.token_hex(8), "arguments": tree, "perturb": perturb})
        nonce = secrets.token_hex(8)
        message: dict[str, object] = {"do": "call", "nonce": nonce}
        if self.arm.hardware.mirrored:
            slot, keys = self._hide([end], [arguments], start)
            message.update(slot=slot, keys=keys, load=True)
        self._tell(end, message)
        return nonce

    def next_done(self, seconds: float, phase: Phase) -> Iterator[tuple[Endpoint, Done]]:
        """Calls by ``start_call`` that have returned within ``seconds``, each as soon as it has.

        Raises Trouble for anything else that a rank says or that happens to it.
        """
        for key, _ in self._selector.select(seconds):
            end = key.data
            if end is None or key.fileobj is not end.channel:
                self._aside(key, phase)
                continue
            self._receive(end, phase)
            frame = self._read_frame(end, phase)
            if isinstance(frame, Done):
                yield end, frame
            elif frame.kind != "prepared":
                raise Trouble(self, "protocol", phase, first=end.rank, detail="message out of turn")
            else:
                end.packet = None
        if self.arm.sandbox.violation is not None:
            raise Trouble(self, "limit", phase)

    def output_of(self, end: Endpoint, done: Done, phase: Phase) -> Node:
        """What a rank says it has returned. Raises Trouble if it cannot be that."""
        try:
            return parse_structure(done.output, end.target.size, self.arm.hardware.device_of(end.rank))
        except BadFrame as error:
            raise Trouble(self, "protocol", phase, first=end.rank, detail=str(error)) from error

    def nothing(self, seconds: float, phase: Phase) -> Call:
        """A call in which no rank does anything: what the way there and back takes."""
        return self._timed({"do": "nothing"}, seconds, phase)

    def stock(self, sets: Sequence[Sequence[Encoded]], starts: Sequence[int], seconds: float, phase: Phase) -> None:
        """Lets the ranks build several sets of arguments, each over its own slot; their bytes come when all stand."""
        for number, (arguments, start) in enumerate(zip(sets, starts, strict=True)):
            nonce = secrets.token_hex(8)
            for end, encoded in zip(self.ends, arguments, strict=True):
                message = {"do": "stock", "more": number > 0, "arguments": encoded.placed(start)}
                self._tell(end, {**message, "nonce": nonce})
            self.thaw()
            self._exchange("prepared", nonce, seconds, phase)
        self.freeze()
        for arguments, start in zip(sets, starts, strict=True):
            for end, encoded in zip(self.ends, arguments, strict=True):
                encoded.write(end.source, start)
        if self.arm.hardware.mirrored:
            sizes = [max(encoded.size for encoded in arguments) for arguments in sets]
            self._load(list(zip(starts, sizes, strict=True)), seconds, phase)

    def train(self, calls: int, replaced: Sequence[int], seconds: float, phase: Phase) -> Call:
        """That many calls back to back on the stocked sets in turn; the last one's output is delivered.

        ``replaced``: places of the arguments that are delivered behind it.
        """
        return self._timed({"do": "train", "calls": calls, "replaced": list(replaced)}, seconds, phase)

    def read_again(self, seconds: float, phase: Phase) -> Call:
        """Lets the job run for SETTLE_SECONDS, then has the outputs of the last call delivered once more."""
        self.thaw()
        end = time.monotonic() + SETTLE_SECONDS
        if self.meanwhile is not None:
            self.meanwhile(SETTLE_SECONDS)
        time.sleep(max(0.0, end - time.monotonic()))
        self.freeze()
        self.scheduled += SETTLE_SECONDS
        return self._timed({"do": "again"}, seconds, phase)

    def _timed(self, message: dict[str, object], seconds: float, phase: Phase) -> Call:
        poison = secrets.randbits(8)
        for end in self.ends:
            end.target.bytes.fill_(poison)
        nonce = self._tell_all(message)
        started = time.perf_counter()
        self.thaw()
        ended = self._exchange("done", nonce, seconds, phase, freeze=True)
        self.scheduled += ended - started
        outputs, claims = [], []
        for end in self.ends:
            done = self._parsed(end, nonce, phase)
            assert isinstance(done, Done)
            outputs.append(self.output_of(end, done, phase))
            claims.append(done.seconds)
        arrived = [end.arrived for end in self.ends]
        claimed = None if None in claims else max(c for c in claims if c is not None)
        return Call(ended - started, tuple(outputs), claimed, max(arrived) - min(arrived))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if value is None or isinstance(value, Abandoned):
                self._verify_silence()
                self.arm.clear()
            elif isinstance(value, Trouble) and value.launch is self:
                raise self._diagnose(value) from value
        except Trouble as trouble:
            raise self._diagnose(trouble) from trouble
        finally:
            self._release()
