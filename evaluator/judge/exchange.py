"""The ranks of one launch and what is said between them and the judge: channels, answers in time, logs, exits.

An answer counts if it is the expected one, to the nonce of the question, from every rank, within its time. Anything
else is Trouble.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import socket
import time
from collections.abc import Sequence

from evaluator.contract import Phase
from evaluator.judge.arm import Arm
from evaluator.judge.endpoint import DUMP_BYTES, Endpoint, open_endpoint, read_now
from evaluator.judge.faults import SUBMISSION
from evaluator.judge.frames import Answer, Done, Error, Exit, Frame, parse
from evaluator.judge.layout import Partition
from evaluator.runner.wire import MAX_FRAME, BadFrame, pack
from evaluator.targets import cpus_of_ranks


class Trouble(Exception):
    """Something other than the expected answer of every rank: ``judge.diagnosis`` makes a fault of it.

    ``first``: the rank it came from; ``seconds``: the budget of the step.
    """

    def __init__(
        self,
        launch: Exchange,
        kind: str,
        phase: Phase,
        *,
        first: int | None = None,
        detail: str = "",
        seconds: float = 0,
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


class Exchange:
    """W fresh rank processes with their channels and regions; forked at once, asked by whoever calls."""

    def __init__(self, arm: Arm, partitions: Sequence[Partition], *, source_bytes: int, target_bytes: int) -> None:
        self.arm = arm
        self.foreign = False
        """True from the moment on when foreign code may run in the ranks."""
        self.lost = False
        """True once the fork server is gone."""
        self._frozen = False
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
