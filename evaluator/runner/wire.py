"""Messages between the judge and the sandbox: one JSON object per packet of a SOCK_SEQPACKET socket.

The kernel keeps the borders of packets, so a peer that writes nonsense spoils one message and not the framing of the
next. Both sides use this module; nothing that arrives is ever unpickled.
"""

from __future__ import annotations

import json
import socket
from typing import Any

MAX_FRAME = 96 * 1024
"""Largest message in bytes; well below the default send buffer of a local socket, so that a send never splits."""


class BadFrame(ValueError):
    """A packet that is not one JSON object of allowed size."""


def pack(message: dict[str, Any]) -> bytes:
    """The packet of a message. Raises BadFrame if it would be longer than MAX_FRAME."""
    packet = json.dumps(message, separators=(",", ":"), ensure_ascii=True).encode()
    if len(packet) > MAX_FRAME:
        raise BadFrame(f"message of {len(packet)} bytes; at most {MAX_FRAME} are allowed")
    return packet


def unpack(packet: bytes) -> dict[str, Any]:
    """The message of a packet. Raises BadFrame for anything but one JSON object of allowed size."""
    if len(packet) > MAX_FRAME:
        raise BadFrame(f"message of more than {MAX_FRAME} bytes")
    try:
        message = json.loads(packet)
    except (ValueError, RecursionError) as error:
        raise BadFrame(f"message of {len(packet)} bytes that is not JSON: {type(error).__name__}") from error
    if not isinstance(message, dict):
        raise BadFrame(f"message that is a JSON {type(message).__name__}, not an object")
    return message


def receive(channel: socket.socket) -> dict[str, Any] | None:
    """The next message of a blocking channel; None at its end. Raises BadFrame."""
    packet = channel.recv(MAX_FRAME + 1)
    return unpack(packet) if packet else None


def send(channel: socket.socket, message: dict[str, Any]) -> None:
    """Sends a message whole. Raises BadFrame if it is too long, OSError if the peer is gone."""
    channel.send(pack(message))
