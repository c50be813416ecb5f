"""Arguments go into shared memory and out again unchanged; so do outputs; nothing is confused on the way."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evaluator.judge.frames import TensorNode, parse_structure
from evaluator.judge.layout import Region, encode, partitions_of
from evaluator.judge.structure import tensors
from evaluator.runner.values import MAX_NODES, TooLarge, build, deliver
from evaluator.runner.values import Region as RankRegion
from problems.suite.base import Group

DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.complex64,
    torch.int64,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.float8_e4m3fn,
]
SIZE = 1 << 20


class Shared:
    """One region seen from both sides."""

    def __init__(self) -> None:
        self.judge = Region(SIZE)
        self.rank = RankRegion(self.judge.descriptor)


@pytest.fixture
def shared() -> Iterator[Shared]:
    both = Shared()
    yield both
    both.judge.close()


@pytest.fixture
def target() -> Iterator[Shared]:
    both = Shared()
    yield both
    both.judge.close()


def same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    return torch.equal(one.contiguous().view(-1).view(torch.uint8), other.contiguous().view(-1).view(torch.uint8))


def steps(value: torch.Tensor) -> list[int]:
    """Strides of the axes along which there is a second element."""
    return [stride for stride, size in zip(value.stride(), value.shape, strict=True) if size > 1]


def drawn(dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    """Any bit pattern: NaN, infinities and denormal numbers among them (0 and 1 for bool)."""
    count = int(torch.tensor(shape).prod()) if shape else 1
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (count * dtype.itemsize,), dtype=torch.uint8)
    return raw.view(dtype).view(shape)


@settings(deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 5), max_size=4),
    st.randoms(use_true_random=False),
    st.integers(0, 10),
)
def test_tensors_arrive_bit_for_bit_with_their_strides(
    dtype: torch.dtype, shape: list[int], random: Any, slot: int
) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    value = drawn(dtype, shape).permute(order)
    both = Shared()
    encoded = encode({"x": value, "y": drawn(torch.float32, [3])}, [])
    encoded.write(both.judge, slot * 4096)
    received = [build(node, both.rank, []) for node in encoded.placed(slot * 4096)]
    assert same_bits(received[0], value)
    if value.numel():
        assert steps(received[0]) == steps(value)
    assert type(received[0]) is torch.Tensor
    assert not encoded.changed(both.judge, slot * 4096)


def test_every_kind_of_argument_arrives(shared: Shared) -> None:
    linear = torch.nn.Linear(3, 2)
    sparse = torch.eye(4).to_sparse_coo().coalesce()
    grad = torch.randn(2, requires_grad=True)
    arguments = {
        "linear": linear,
        "sparse": sparse,
        "grad": grad,
        "numbers": [1, 2.5, True, "text", None, (3, [float("inf")])],
        "size": torch.Size([2, 3]),
        "group": Group(((0, 1), (2, 3))),
        "expanded": torch.arange(3.0).expand(2, 3),
    }
    partitions = list(partitions_of([arguments]))
    encoded = encode(arguments, partitions)
    encoded.write(shared.judge, 0)
    got = dict(zip(arguments, (build(n, shared.rank, ["the group"]) for n in encoded.placed(0)), strict=True))
    assert isinstance(got["linear"], torch.nn.Linear)
    assert torch.equal(got["linear"].weight, linear.weight)
    assert torch.equal(got["linear"].bias, linear.bias)
    assert isinstance(got["linear"].weight, torch.nn.Parameter)
    assert torch.equal(got["sparse"].to_dense(), torch.eye(4))
    assert got["sparse"].is_coalesced()
    assert got["grad"].requires_grad
    assert got["grad"].is_leaf
    assert got["numbers"] == arguments["numbers"]
    assert got["size"] == torch.Size([2, 3])
    assert type(got["size"]) is torch.Size
    assert got["group"] == "the group"
    assert torch.equal(got["expanded"], torch.arange(3.0).expand(2, 3))


def test_arguments_of_other_kinds_are_a_mistake_of_the_problem() -> None:
    with pytest.raises(TypeError, match="argument x is a set"):
        encode({"x": {1}}, [])


def test_a_change_is_noticed_and_named(shared: Shared) -> None:
    encoded = encode({"a": torch.zeros(4), "b": torch.zeros(4)}, [])
    encoded.write(shared.judge, 0)
    received = build(encoded.placed(0)[1], shared.rank, [])
    received[2] = -0.0  # equal in value, not in bits
    assert encoded.changed(shared.judge, 0) == ["b"]
    assert encoded.named(0) == "a"
    assert encoded.named(encoded.pieces[1].offset) == "b"
    assert encoded.named(10_000) == ""


def test_outputs_come_back_with_their_structure(shared: Shared, target: Shared) -> None:
    view = torch.arange(12.0).view(3, 4).T
    output = (view, {"k": [torch.tensor(2, dtype=torch.int64), None, 1.5]})
    node = parse_structure(deliver(output, target.rank, shared.rank), target.judge.size)
    found = list(tensors(node))
    assert same_bits(target.judge.read(found[0]), view)
    assert int(target.judge.read(found[1])) == 2
    assert not found[0].overlap


def test_what_an_output_may_not_be_is_described(shared: Shared, target: Shared) -> None:
    encoded = encode({"a": torch.zeros(8), "b": torch.zeros(8)}, [])
    encoded.write(shared.judge, 0)
    second = build(encoded.placed(0)[1], shared.rank, [])
    marked = torch.zeros(1)
    marked.note = "x"  # type: ignore[attr-defined]
    output = [torch.zeros(1).expand(3), second[2:], torch.eye(2).to_sparse(), marked]
    node = parse_structure(deliver(output, target.rank, shared.rank), target.judge.size)
    overlapping, alias, sparse, attributed = tensors(node)
    assert overlapping.overlap
    assert alias.alias is not None
    assert encoded.named(alias.alias) == "b"
    assert sparse.layout == "sparse_coo"
    assert sparse.offset is None
    assert attributed.extra


@pytest.mark.parametrize("output", [torch.nn.Parameter(torch.zeros(2)), {1, 2}, object(), 2**70])
def test_objects_of_other_classes_are_not_copied(shared: Shared, target: Shared, output: Any) -> None:
    node = parse_structure(deliver(output, target.rank, shared.rank), target.judge.size)
    assert not isinstance(node, TensorNode)


def test_outputs_larger_than_expected_are_not_copied(shared: Shared, target: Shared) -> None:
    with pytest.raises(TooLarge):
        deliver(torch.zeros(SIZE), target.rank, shared.rank)


@pytest.mark.parametrize("length", [MAX_NODES, 1_000, 100_000])
def test_structures_too_large_to_describe_are_not_described_in_part(
    shared: Shared, target: Shared, length: int
) -> None:
    endless: list[Any] = []
    endless.append(endless)
    for output in (endless, list(range(length))):
        with pytest.raises(TooLarge, match="parts"):
            deliver(output, target.rank, shared.rank)
    fits = list(range(MAX_NODES - 1))
    parse_structure(deliver(fits, target.rank, shared.rank), target.judge.size)


def test_a_region_cannot_be_shrunk_or_grown_by_a_rank(shared: Shared) -> None:
    """A shrunk region would kill the judge with SIGBUS."""
    import os

    with pytest.raises(PermissionError):
        os.ftruncate(shared.judge.descriptor, 0)
    with pytest.raises(PermissionError):
        os.ftruncate(shared.judge.descriptor, 2 * SIZE)
