"""Arguments on a device: they mean nothing before the call, lie where the judge put them, and come back after it."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.judge.layout import Region, encode
from evaluator.runner.device import Mirror
from evaluator.runner.scramble import scramble
from evaluator.runner.values import build

KEYS = st.tuples(st.integers(0, 2**62 - 1), st.integers(0, 2**62 - 1))


@given(words=st.integers(0, 300), keys=KEYS)
def test_scrambling_twice_gives_the_bytes_back(words: int, keys: tuple[int, int]) -> None:
    data = torch.randint(0, 256, (8 * words,), dtype=torch.uint8)
    scrambled = data.clone()
    scramble(scrambled, keys)
    assert words < 2 or not torch.equal(scrambled, data)
    scramble(scrambled, keys)
    assert torch.equal(scrambled, data)


def test_equal_words_do_not_look_equal() -> None:
    """Else a table of small whole numbers could be read without the keys."""
    data = torch.zeros(8 * 10_000, dtype=torch.uint8)
    scramble(data, (123456789, 987654321))
    assert len(data.view(torch.int64).unique()) == 10_000
    bits = sum(int((data & (1 << bit)).ne(0).sum()) for bit in range(8)) / (8 * data.numel())
    assert 0.49 < bits < 0.51


def test_a_ragged_end_is_refused() -> None:
    with pytest.raises(ValueError, match="9 bytes"):
        scramble(torch.zeros(9, dtype=torch.uint8), (1, 2))


def test_a_slot_comes_to_the_device_and_back() -> None:
    arguments = {
        "x": torch.randn(5, 7, dtype=torch.bfloat16),
        "turned": torch.randn(3, 4).t(),
        "none": torch.empty(0, 3),
        "scalar": torch.tensor(2.5),
        "n": 3,
    }
    encoded = encode(arguments, [])
    start, keys = 128, (11, 22)
    with Region(4096) as region:
        mirror = Mirror(os.dup(region.descriptor), torch.device("cpu"))
        nodes = encoded.placed(start)
        built = [build(node, mirror, []) for node in nodes]
        encoded.write(region, start)
        scramble(region.bytes[start : start + encoded.size], keys)

        mirror.load([(start, encoded.size)])
        assert not torch.equal(built[0], arguments["x"]), "readable before the call"
        mirror.unlock(start, encoded.size, keys)
        for got, expected in zip(built, arguments.values(), strict=True):
            if isinstance(expected, torch.Tensor):
                assert got.shape == expected.shape and got.stride() == expected.stride()
                assert torch.equal(got, expected)
                assert got.untyped_storage().nbytes() == expected.untyped_storage().nbytes()
            else:
                assert got == expected
        assert built[0].data_ptr() - mirror.address == nodes[0]["offset"], "aliases are found by address"

        mirror.save(start, encoded.size)
        assert encoded.changed(region, start) == []
        built[0].zero_()
        mirror.save(start, encoded.size)
        assert encoded.changed(region, start) == ["x"]
        del built, mirror, got
