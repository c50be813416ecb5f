"""Inputs that mean nothing before the call begins.

A device must have the bytes of a call before it starts, since the way over the bus takes longer than most calls. So the
judge writes them combined with words that follow from two secret numbers, and gives the numbers away with the start of
the call; undoing it takes one pass over the bytes at the device's own speed. This hides nothing for long. It need only
hide it until the start.
"""

from __future__ import annotations

import torch
from torch import Tensor

KEY_BITS = 62
_STRIDE = -7046029254386353131  # 2^64 / golden ratio, as a signed word: consecutive places differ in half of the bits


def scramble(data: Tensor, keys: tuple[int, int]) -> None:
    """Combines ``data``, (bytes,) uint8 with a multiple of 8 bytes, with the words of ``keys``; twice undoes it.

    The same on every device: whole numbers of 64 bits, which wrap around. Raises ValueError for a ragged end.
    """
    if data.numel() % 8:
        raise ValueError(f"{data.numel()} bytes are no whole number of 8-byte words")
    first, second = keys
    words = data.view(torch.int64)
    stream = torch.arange(words.numel(), dtype=torch.int64, device=data.device)
    stream.mul_(_STRIDE).add_(first)
    stream.bitwise_xor_(stream >> 31).mul_(second | 1)
    stream.bitwise_xor_(stream >> 29)
    words.bitwise_xor_(stream)
