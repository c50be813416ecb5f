"""The judge's end of one rank: its channel, its pipes, its memory, and what is known of it."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass, field

from evaluator.judge.faults import RankState
from evaluator.judge.frames import Error
from evaluator.judge.layout import Region

LOG_TAIL = 8_192
DUMP_BYTES = 65_536


@dataclass
class Endpoint:
    """The judge's end of one rank."""

    rank: int
    channel: socket.socket
    log: int
    dump: int
    source: Region
    target: Region
    state: RankState
    log_tail: bytearray = field(default_factory=bytearray)
    dump_text: bytearray = field(default_factory=bytearray)
    packet: bytes | None = None
    arrived: float = 0.0
    """When the packet came, by time.perf_counter."""
    error: Error | None = None
    status: int | None = None
    closed: bool = False

    def keep_log(self, chunk: bytes) -> None:
        """Keeps the end of what the rank prints."""
        self.log_tail += chunk
        del self.log_tail[:-LOG_TAIL]

    @property
    def answered(self) -> bool:
        return self.packet is not None

    @property
    def failed(self) -> bool:
        return self.error is not None or self.closed or self.status is not None

    def drain_log(self) -> None:
        """Takes in what the rank has printed by now; a rank that prints on and on is not followed for ever."""
        for _ in range(16):
            chunk = read_now(self.log)
            if not chunk:
                return
            self.keep_log(chunk)

    def close(self) -> None:
        """Closes everything; the memory is given back once the rank is gone too."""
        self.channel.close()
        os.close(self.log)
        os.close(self.dump)
        self.source.close()
        self.target.close()


def open_endpoint(rank: int, source_bytes: int, target_bytes: int) -> tuple[Endpoint, list[int]]:
    """The judge's end of a rank, and the descriptors for the rank in the order in which it expects them.

    The first three are the caller's to close once the rank has them; the other two belong to the regions.
    """
    channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    log, log_inside = os.pipe2(os.O_CLOEXEC)
    dump, dump_inside = os.pipe2(os.O_CLOEXEC)
    os.set_blocking(log, False)
    os.set_blocking(dump, False)
    end = Endpoint(rank, channel, log, dump, Region(source_bytes), Region(target_bytes), RankState(rank))
    return end, [other.detach(), log_inside, dump_inside, end.source.descriptor, end.target.descriptor]


def read_now(descriptor: int) -> bytes | None:
    """What is there to read: b"" at the end, None if nothing is there yet."""
    try:
        return os.read(descriptor, 65_536)
    except BlockingIOError:
        return None
