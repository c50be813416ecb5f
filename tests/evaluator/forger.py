"""A candidate that speaks the wire itself: no sandbox, no rank, only a thread that answers what the test wants.

It takes the place of the fork server and of all ranks, at the very sockets, pipes and regions that these would have.
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

from evaluator.judge.arm import Arm
from evaluator.judge.hardware import HOST
from evaluator.runner.wire import MAX_FRAME, pack
from evaluator.sandbox import Sandbox

DESCRIPTORS = 5
ANSWERS = {
    "compile": "compiled",
    "import": "imported",
    "ready": "ready",
    "prepare": "prepared",
    "call": "done",
    "again": "done",
    "clear": "cleared",
}

Reply = Callable[[dict[str, Any]], Sequence[bytes | None]]
"""From the judge's message to the packets that answer it; None closes the channel."""


class ForgedArm(Arm):
    """An arm whose job is a thread of the test. ``reply`` is asked for the answer to every message."""

    def __init__(self, world_size: int, reply: Reply) -> None:
        self.name = "candidate"
        self.world_size = world_size
        self.hardware = HOST
        self.launches = 0
        self.base = set()
        self.kept: tuple[str, ...] = ()
        self.control, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        nothing = SimpleNamespace(
            violation=None,
            first_port=1,
            path=lambda inside: inside,
            freeze=lambda: None,
            thaw=lambda: None,
            hold=lambda pid: None,
            let_go=lambda pid: None,
            members=lambda: [],
            inner_pids=lambda: {},
            cpu_seconds=lambda: {},
            output=lambda: "",
        )
        self.sandbox = cast(Sandbox, nothing)
        self.forger = Forger(inside, reply)

    def stop(self) -> None:
        self.control.close()
        self.forger.join()


class Forger(threading.Thread):
    """Plays fork server and ranks until the judge has closed its ends."""

    def __init__(self, control: socket.socket, reply: Reply) -> None:
        super().__init__(daemon=True)
        self.control = control
        self.reply = reply
        self.selector = selectors.DefaultSelector()
        self.selector.register(control, selectors.EVENT_READ)
        self.start()

    def run(self) -> None:
        while self.selector.get_map():
            for key, _ in self.selector.select():
                channel = cast(socket.socket, key.fileobj)
                try:
                    packet, descriptors, _, _ = socket.recv_fds(channel, MAX_FRAME + 1, 16 * DESCRIPTORS)
                except ConnectionError:  # the judge has closed it with answers unread
                    packet, descriptors = b"", []
                if not packet:
                    self.leave(channel)
                else:
                    self.obey(channel, json.loads(packet), descriptors)
        self.selector.close()

    def obey(self, channel: socket.socket, message: dict[str, Any], descriptors: list[int]) -> None:
        if message["do"] == "launch":
            for first in range(0, len(descriptors), DESCRIPTORS):
                own, *others = descriptors[first : first + DESCRIPTORS]
                for descriptor in others:
                    os.close(descriptor)
                rank = socket.socket(fileno=own)
                self.selector.register(rank, selectors.EVENT_READ)
                rank.send(pack({"is": "initialised", "nonce": message["nonce"]}))
            return
        for packet in self.reply(message):
            try:
                if packet is None:
                    self.leave(channel)
                    return
                channel.send(packet)
            except OSError:  # the judge has turned away
                self.leave(channel)
                return

    def leave(self, channel: socket.socket) -> None:
        self.selector.unregister(channel)
        channel.close()


def right(message: dict[str, Any], output: Any) -> dict[str, Any]:
    """What an honest rank or fork server would answer."""
    answer = {"is": ANSWERS.get(message["do"], "prepared"), "nonce": message.get("nonce", "")}
    return answer | ({"output": output, "seconds": 0.001} if answer["is"] == "done" else {})
