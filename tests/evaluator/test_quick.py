"""Words instead of bytes: the same answers, for every length and place of a difference."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.judge.quick import BLOCK, Fingerprint, same_bytes

lengths = st.sampled_from([0, 1, 7, 8, 9, 8 * BLOCK - 1, 8 * BLOCK, 8 * BLOCK + 5, 24 * BLOCK + 3])


def data(length: int) -> torch.Tensor:
    return torch.randint(0, 256, (length,), dtype=torch.uint8)


@given(lengths, st.integers(0, 10**9), st.integers(0, 7))
def test_one_changed_byte_is_seen_wherever_it_is(length: int, place: int, offset: int) -> None:
    whole = data(length + offset)
    one = whole[offset:]
    other = one.clone()
    assert same_bytes(one, other)
    if length:
        other[place % length] ^= 1
        assert not same_bytes(one, other)
        fingerprint = Fingerprint()
        if offset == 0:
            assert fingerprint(one) != fingerprint(other)
            assert fingerprint(one) == fingerprint(one.clone())
    assert not same_bytes(one, torch.cat([one, one.new_zeros(1)]))


def test_words_that_change_places_change_the_fingerprint() -> None:
    fingerprint = Fingerprint()
    one = data(32 * BLOCK)
    words = one.view(torch.int64)
    within, across = words.clone(), words.clone()
    within[[0, 1]] = words[[1, 0]]
    across[[0, BLOCK]] = words[[BLOCK, 0]]
    seen = {fingerprint(tensor.view(torch.uint8)) for tensor in (words, within, across)}
    assert len(seen) == 3


def test_only_who_holds_the_secret_numbers_can_compute_it() -> None:
    one = data(64)
    assert Fingerprint()(one) != Fingerprint()(one)


def test_zeros_of_different_lengths_differ() -> None:
    fingerprint = Fingerprint()
    assert len({fingerprint(torch.zeros(n, dtype=torch.uint8)) for n in (0, 8, 16, 8 * BLOCK, 16 * BLOCK)}) == 5
