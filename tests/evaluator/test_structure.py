"""Structures must match exactly; every difference gets its own sentence with what was expected and received."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from evaluator.judge.frames import DictNode, Node, OtherNode, SequenceNode, TensorNode, ValueNode
from evaluator.judge.structure import Pair, match
from problems.suite.base import Exact, Free, Leaf, Tolerance

TOLERANCE = Tolerance(1e-5, 1e-5)
LEAF = Leaf(torch.zeros(2, 3, dtype=torch.float64), torch.float32)
ON_HOST = replace(LEAF, device="cpu")
GOOD = TensorNode(torch.float32, (2, 3), "torch.Tensor", "cpu", "strided", False, False, None, 0)


def compared(expected: Any, node: Node) -> tuple[list[str], list[str]]:
    """Paths of the tensors to compare, and sentences of what is wrong."""
    found = list(match(expected, node, TOLERANCE))
    return [f.path for f in found if isinstance(f, Pair)], [f for f in found if isinstance(f, str)]


@pytest.mark.parametrize(
    ("expected", "node"),
    [
        (LEAF, GOOD),
        (LEAF, replace(GOOD, device="cuda:0", home="cuda:0")),
        (ON_HOST, replace(GOOD, home="cuda:0")),
        ((LEAF, LEAF), SequenceNode("tuple", (GOOD, GOOD))),
        ([LEAF], SequenceNode("list", (GOOD,))),
        ({"a": LEAF, "b": None}, DictNode((("b", ValueNode(None)), ("a", GOOD)))),
        (None, ValueNode(None)),
        ((1, True, "x"), SequenceNode("tuple", (ValueNode(1), ValueNode(True), ValueNode("x")))),
        (torch.Size([2, 3]), SequenceNode("size", (ValueNode(2), ValueNode(3)))),
        (1.0, ValueNode(1.000001)),
        (float("nan"), ValueNode(float("nan"))),
        (Leaf(torch.zeros(9), torch.float32, Free()), ValueNode(None)),
        ((Leaf(torch.zeros(9), torch.float32, Free()), LEAF), SequenceNode("tuple", (OtherNode("an int"), GOOD))),
    ],
)
def test_what_fits(expected: Any, node: Node) -> None:
    assert compared(expected, node)[1] == []


@pytest.mark.parametrize(
    ("expected", "node", "sentence"),
    [
        (LEAF, ValueNode(None), "output: expected a tensor of shape (2, 3) and dtype float32, received None"),
        (LEAF, replace(GOOD, shape=(3, 2)), "received a tensor of shape (3, 2) and dtype float32"),
        (LEAF, replace(GOOD, dtype=torch.float64), "received a tensor of shape (2, 3) and dtype float64"),
        (LEAF, replace(GOOD, device="meta"), "expected on the device cpu, received on meta"),
        (LEAF, replace(GOOD, home="cuda:1"), "expected on the device cuda:1, received on cpu"),
        (ON_HOST, replace(GOOD, device="cuda:1", home="cuda:1"), "expected on the device cpu, received on cuda:1"),
        (LEAF, replace(GOOD, layout="sparse_csr"), "received the layout sparse_csr"),
        (LEAF, replace(GOOD, overlap=True), "share memory"),
        (LEAF, replace(GOOD, extra=True), "plain torch.Tensor"),
        (LEAF, SequenceNode("tuple", (GOOD,)), "received a tuple of 1"),
        ((LEAF,), GOOD, "expected a tuple of 1, received a tensor"),
        ((LEAF,), SequenceNode("list", (GOOD,)), "expected a tuple of 1, received a list of 1"),
        ((LEAF, LEAF), SequenceNode("tuple", (GOOD,)), "expected a tuple of 2, received a tuple of 1"),
        ((LEAF, LEAF), SequenceNode("tuple", (GOOD, ValueNode(0))), "output[1]: expected a tensor"),
        (torch.Size([2]), SequenceNode("tuple", (ValueNode(2),)), "expected a torch.Size of 1, received a tuple of 1"),
        ({"a": LEAF}, DictNode((("b", GOOD),)), "keys ['a'], received a dict with the keys ['b']"),
        ({"a": LEAF}, DictNode((("a", ValueNode(1)),)), "output['a']: expected a tensor"),
        (1, ValueNode(True), "expected a int, received a bool"),
        (1, ValueNode(2), "expected the value 1, received 2"),
        (1.0, ValueNode(1.1), "expected the value 1.0, received 1.1"),
        (1.0, ValueNode(1), "expected a float, received a int"),
        (None, GOOD, "expected None, received a tensor"),
        (LEAF, OtherNode("an object of solution.Lazy"), "received an object of solution.Lazy"),
    ],
)
def test_what_does_not_fit_is_said(expected: Any, node: Node, sentence: str) -> None:
    paths, sentences = compared(expected, node)
    assert len(sentences) == 1
    assert sentence in sentences[0]
    assert len(paths) <= 1


def test_every_tensor_is_compared_under_its_path() -> None:
    expected = (LEAF, [LEAF, {"k": LEAF}])
    node = SequenceNode("tuple", (GOOD, SequenceNode("list", (GOOD, DictNode((("k", GOOD),))))))
    assert compared(expected, node)[0] == ["output[0]", "output[1][0]", "output[1][1]['k']"]


def test_exact_leaves_have_their_shape_checked_too() -> None:
    leaf = Leaf(torch.zeros(2, dtype=torch.int64), torch.int64, Exact())
    assert compared(leaf, GOOD)[1]
