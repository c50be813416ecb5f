"""One launch of an arm: W fresh rank processes, their channels and regions, and the calls made in them.

A call: the ranks build their arguments over a slot whose bytes are not there yet; the whole job is stopped; the judge
writes the arguments, poisons the output regions and sends the call; it takes the time, lets the job run, and at the
last rank's answer stops it and takes the time again. So nothing can look ahead, and what is not done by then was not
done in time. Correctness trials and timed calls go this way alike.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from evaluator.contract import Phase
from evaluator.judge.arm import Arm
from evaluator.judge.endpoint import DUMP_BYTES, Endpoint, open_endpoint, read_now
from evaluator.judge.faults import SUBMISSION
from evaluator.judge.frames import Answer, Done, Error, Exit, Frame, Node, parse, parse_structure
from evaluator.judge.layout import Encoded, Partition
from evaluator.runner.scramble import KEY_BITS, scramble
from evaluator.runner.wire import MAX_FRAME, BadFrame, pack
from evaluator.targets import cpus_of_ranks

SETTLE_SECONDS = 0.05
"""How long the job runs on after a checked call before its outputs are read a second time."""


class Trouble(Exception):
    """Something other than the expected answer of every rank: ``judge.diagnosis`` makes a fault of it.

    ``first``: the rank it came from; ``seconds``: the budget of the step.
    """

    def __init__(
        self, launch: Launch, kind: str, phase: Phase, *, first: int | None = None, detail: str = "", seconds: float = 0
    ) -> None:
        super().__init__(kind)
        self.launch = launch
        self.seconds = seconds
        self.kind = kind
        """"failed" (a rank raised or ended), "stuck" (no answer in time), "protocol", "lost" (fork server), "limit"."""
        self.foreign = launch.foreign
        self.phase = phase
        self.first = first
        self.detail = detail


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


class Launch:
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
        self.arm = arm
        self._diagnose = diagnose
        self.scheduled = 0.0
        self.foreign = False
        """True from the moment on when foreign code may run in the ranks."""
        self.lost = False
        """True once the fork server is gone."""
        self._frozen = False
        self._watching = False
        self.meanwhile: Callable[[float], None] | None = None
        """Work of the judge's own for the pause of ``read_again``, which gets its seconds and must not take more."""
        self._selector = selectors.DefaultSelector()
        self._selector.register(arm.control, selectors.EVENT_READ)
        self.ends: list[Endpoint] = []
        self._nonce = secrets.token_hex(8)
        arm.launches += 1
        self.number = arm.launches
        theirs: list[int] = []
        try:
            for rank in range(arm.world_size):
                end, descriptors = open_endpoint(rank, source_bytes, target_bytes)
                self.ends.append(end)
                theirs += descriptors
                for readable in (end.channel, end.log, end.dump):
                    self._selector.register(readable, selectors.EVENT_READ, end)
            arm.command(
                {
                    "do": "launch",
                    "launch": self.number,
                    "nonce": self._nonce,
                    "world_size": arm.world_size,
                    "port": arm.sandbox.first_port + self.number,
                    "partitions": partitions,
                    "cpus": cpus_of_ranks(arm.world_size),
                    "path": arm.sandbox.path(SUBMISSION),
                    "environment": {},
                    **arm.hardware.command(),
                },
                theirs,
            )
        finally:
            regions = {d for end in self.ends for d in (end.source.descriptor, end.target.descriptor)}
            for descriptor in theirs:
                if descriptor not in regions:
                    os.close(descriptor)

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

    def logs(self) -> list[str]:
        """The end of what every rank has printed."""
        for end in self.ends:
            end.drain_log()
        return [end.log_tail.decode("utf-8", "replace") for end in self.ends]

    def freeze(self) -> None:
        """Stops every process of the job."""
        self.arm.freeze()
        self._frozen = True

    def thaw(self) -> None:
        """Lets the job run; does nothing if it does."""
        if self._frozen:
            self._frozen = False
            self.arm.sandbox.thaw()

    # Messages.

    def _tell_all(self, message: dict[str, object]) -> str:
        nonce = secrets.token_hex(8)
        for end in self.ends:
            self._tell(end, {**message, "nonce": nonce})
        return nonce

    def _tell(self, end: Endpoint, message: dict[str, object]) -> None:
        end.packet = None
        # A rank that is gone or does not read is found by the exchange that follows.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, BlockingIOError):
            end.channel.send(pack(message), socket.MSG_DONTWAIT)

    def _exchange(self, expected: str, nonce: str, seconds: float, phase: Phase, *, freeze: bool = False) -> float:
        """Waits for one packet from every rank; returns the time when the last came and, if wanted, all was stopped."""
        normal = f'{{"is":"{expected}"'.encode()
        now = time.perf_counter()
        deadline = now + seconds
        waiting = len(self.ends)
        while waiting:
            if now >= deadline:
                raise Trouble(self, "stuck", phase, seconds=seconds)
            for key, _ in self._selector.select(min(deadline - now, 0.2)):
                end = key.data
                if end is None or key.fileobj is not end.channel:
                    self._aside(key, phase)
                    continue
                if end.packet is not None:
                    raise Trouble(self, "protocol", phase, first=end.rank, detail="message that nothing had asked for")
                self._receive(end, phase)
                waiting -= 1
                if end.packet is not None and not end.packet.startswith(normal):
                    self._parsed(end, nonce, phase)
                    raise Trouble(self, "protocol", phase, first=end.rank, detail="message out of turn")
            if self.arm.sandbox.violation is not None:
                raise Trouble(self, "limit", phase)
            now = time.perf_counter()
        if freeze:
            self.freeze()
            now = time.perf_counter()
        for end in self.ends:
            frame = self._parsed(end, nonce, phase)
            if frame.kind != expected:
                raise Trouble(self, "protocol", phase, first=end.rank, detail="message out of turn")
        return now

    def _receive(self, end: Endpoint, phase: Phase) -> None:
        try:
            packet = end.channel.recv(MAX_FRAME + 1, socket.MSG_DONTWAIT)
        except ConnectionError:
            packet = b""
        if not packet:
            end.closed = True
            self._selector.unregister(end.channel)
            raise Trouble(self, "failed", phase, first=end.rank)
        end.packet = packet
        end.arrived = time.perf_counter()

    def _parsed(self, end: Endpoint, nonce: str, phase: Phase) -> Answer | Done:
        """The rank's packet as an answer to ``nonce``. Raises Trouble for an error or anything unexpected."""
        frame = self._read_frame(end, phase, nonce)
        if frame.nonce != nonce:
            raise Trouble(self, "protocol", phase, first=end.rank, detail="message out of turn")
        return frame

    def _read_frame(self, end: Endpoint, phase: Phase, nonce: str = "") -> Answer | Done:
        """The rank's packet as an answer. Raises Trouble for an error (to ``nonce``, if given) or anything else."""
        assert end.packet is not None
        try:
            frame: Frame = parse(end.packet)
        except BadFrame as error:
            raise Trouble(self, "protocol", phase, first=end.rank, detail=str(error)) from error
        if isinstance(frame, Error) and nonce in ("", frame.nonce):
            end.error = frame
            raise Trouble(self, "failed", phase, first=end.rank)
        if not isinstance(frame, Answer | Done):
            raise Trouble(self, "protocol", phase, first=end.rank, detail="message out of turn")
        return frame

    def _aside(self, key: selectors.SelectorKey, phase: Phase) -> None:
        """Reads what is not an answer: logs, dumps, exit reports."""
        end: Endpoint | None = key.data
        if end is not None:
            chunk = read_now(key.fd)
            if chunk == b"":
                self._selector.unregister(key.fileobj)
            elif chunk and key.fd == end.log:
                end.keep_log(chunk)
            elif chunk and len(end.dump_text) < DUMP_BYTES:
                end.dump_text += chunk
            return
        packet = self.arm.control.recv(MAX_FRAME + 1, socket.MSG_DONTWAIT)
        if not packet:
            self._selector.unregister(self.arm.control)
            self.lost = True
            raise Trouble(self, "lost", phase)
        try:
            frame = parse(packet)
        except BadFrame as error:
            raise Trouble(self, "protocol", phase, detail=f"{error} from the fork server") from error
        if isinstance(frame, Exit) and frame.launch == self.number and frame.rank < len(self.ends):
            self.ends[frame.rank].status = frame.status
            raise Trouble(self, "failed", phase, first=frame.rank)

    def collect(self, seconds: float, phase: Phase, *, until: str = "settled") -> None:
        """After trouble: takes in what still comes for ``seconds``, or until every rank is accounted for."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0 and not self._accounted(until):
            for key, _ in self._selector.select(left):
                with contextlib.suppress(Trouble):
                    end = key.data
                    if end is not None and key.fileobj is end.channel:
                        self._receive(end, phase)
                        with contextlib.suppress(BadFrame):
                            frame = parse(end.packet)
                            end.error = frame if isinstance(frame, Error) else end.error
                    else:
                        self._aside(key, phase)

    def _accounted(self, until: str) -> bool:
        if until == "exits":
            return all(end.status is not None for end in self.ends if end.closed)
        return all(end.failed for end in self.ends)

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

    def _verify_silence(self) -> None:
        """Raises Trouble if a rank has sent something that nothing had asked for."""
        for end in self.ends:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                if end.channel.recv(MAX_FRAME + 1, socket.MSG_DONTWAIT):
                    detail = "message that nothing had asked for"
                    raise Trouble(self, "protocol", end.state.reached, first=end.rank, detail=detail)

    def _release(self) -> None:
        self._selector.close()
        for end in self.ends:
            end.close()
