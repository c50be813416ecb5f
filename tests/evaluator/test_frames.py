"""Whatever bytes come out of a sandbox: they become a message of the protocol or a BadFrame, and nothing else."""

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from evaluator.judge.frames import (
    Done,
    Error,
    SequenceNode,
    TensorNode,
    ValueNode,
    parse,
    parse_structure,
)
from evaluator.judge.structure import tensors
from evaluator.runner.wire import MAX_FRAME, BadFrame, pack, unpack

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=20,
)
KINDS = ["up", "exit", "initialised", "ready", "prepared", "cleared", "done", "error", "what"]
FIELDS = ["is", "nonce", "rank", "status", "launch", "output", "type", "message", "traceback", "errno", "torch"]
NEARLY = st.fixed_dictionaries(
    {"is": st.sampled_from(KINDS) | JSON},
    optional={name: JSON for name in FIELDS if name != "is"},
)
TENSOR = {
    "t": "tensor",
    "dtype": "float32",
    "shape": [2, 3],
    "class": "torch.Tensor",
    "device": "cpu",
    "layout": "strided",
    "overlap": False,
    "extra": False,
    "alias": None,
}


@given(st.binary(max_size=2_000))
def test_random_bytes_never_get_further(packet: bytes) -> None:
    with pytest.raises(BadFrame):
        parse(packet)


@given(NEARLY)
def test_messages_that_are_nearly_right_are_parsed_or_refused(message: dict[str, Any]) -> None:
    try:
        parse(json.dumps(message).encode())
    except BadFrame as error:
        assert len(str(error)) < 400


@pytest.mark.parametrize(
    "packet",
    [
        b"[" * 90_000,
        b'{"is":' * 15_000,
        b'{"is":"done","nonce":"x","output":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_001,
        b'{"is":"exit","launch":' + b"9" * 5_000 + b',"rank":0,"status":0}',
        b'{"is":"exit","launch":1,"rank":-1,"status":0}',
        b'{"is":"exit","launch":1,"rank":true,"status":0}',
        b'{"is":"ready","nonce":"x","more":1}',
        b'{"is":"ready","nonce":NaN}',
        b'{"is":"ready","nonce":"\xff"}',
        b" " * (MAX_FRAME + 1),
        b"null",
        b"",
    ],
)
def test_hostile_packets_are_refused(packet: bytes) -> None:
    with pytest.raises(BadFrame):
        parse(packet)


def test_messages_of_the_runner_are_understood() -> None:
    error = {"is": "error", "nonce": "n", "type": "ValueError", "message": "x", "traceback": "t", "errno": None}
    assert isinstance(parse(pack(error)), Error)
    assert isinstance(parse(pack({"is": "done", "nonce": "n", "output": {"t": "value", "v": None}})), Done)


@given(JSON.filter(lambda value: isinstance(value, dict)))
def test_packing_and_unpacking_gives_the_same_message(message: dict[str, Any]) -> None:
    assert json.dumps(unpack(pack(message))) == json.dumps(message)


def test_a_message_too_long_to_send_is_refused_by_the_sender() -> None:
    with pytest.raises(BadFrame, match="at most"):
        pack({"text": "x" * MAX_FRAME})


@given(JSON, st.integers(0, 10_000))
def test_random_structures_never_get_further(described: Any, capacity: int) -> None:
    try:
        parse_structure(described, capacity)
    except BadFrame:
        return


@given(
    st.fixed_dictionaries({name: st.just(value) | JSON for name, value in TENSOR.items()}),
    st.integers(0, 10_000),
)
def test_no_described_tensor_reaches_beyond_its_region(described: dict[str, Any], capacity: int) -> None:
    try:
        node = parse_structure({"t": "list", "items": [TENSOR, described]}, capacity)
    except BadFrame:
        return
    for tensor in tensors(node):
        assert tensor.offset is None or 0 <= tensor.offset <= tensor.offset + tensor.nbytes <= capacity


@pytest.mark.parametrize(
    "change",
    [
        {"shape": [2**39, 2**39]},
        {"shape": [-1, 3]},
        {"shape": [True, 3]},
        {"shape": [1] * 17},
        {"shape": "ab"},
        {"dtype": "float33"},
        {"dtype": ["float32"]},
    ],
)
def test_impossible_tensors_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(BadFrame):
        parse_structure({**TENSOR, **change}, 10_000)


def test_structures_of_any_depth_and_width_are_bounded() -> None:
    deep: Any = {"t": "value", "v": 1}
    for _ in range(100):
        deep = {"t": "list", "items": [deep]}
    with pytest.raises(BadFrame, match="deeper"):
        parse_structure(deep, 100)
    with pytest.raises(BadFrame, match="parts"):
        parse_structure({"t": "list", "items": [{"t": "value", "v": 1}] * 1_000}, 100)


def test_tensors_lie_one_behind_the_other() -> None:
    node = parse_structure({"t": "tuple", "items": [TENSOR, {"t": "value", "v": 3}, TENSOR]}, 256)
    assert isinstance(node, SequenceNode)
    first, number, second = node.items
    assert isinstance(first, TensorNode)
    assert isinstance(second, TensorNode)
    assert number == ValueNode(3)
    assert (first.offset, second.offset) == (0, 64)
    assert first.dtype is torch.float32


def test_tensors_that_cannot_be_copied_take_no_room() -> None:
    sparse = {**TENSOR, "layout": "sparse_coo"}
    node = parse_structure({"t": "list", "items": [sparse, TENSOR]}, 64)
    assert [tensor.offset for tensor in tensors(node)] == [None, 0]
