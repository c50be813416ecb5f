"""Whether an output has the expected structure, and which of its tensors is which."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from evaluator.judge.frames import DictNode, Node, OtherNode, SequenceNode, TensorNode, ValueNode
from problems.suite.base import Free, Leaf, Tolerance


@dataclass(frozen=True)
class Pair:
    """An expected tensor and the delivered one of the same shape and dtype."""

    path: str
    leaf: Leaf
    node: TensorNode


def match(expected: Any, node: Node, tolerance: Tolerance, path: str = "output") -> Iterator[Pair | str]:
    """Walks both structures; yields a Pair for each tensor to compare and a sentence for each difference.

    Containers, lengths, keys, None and the types of scalars must be exactly the expected ones.
    """
    if isinstance(expected, Leaf):
        yield from _match_leaf(expected, node, path)
    elif isinstance(expected, list | tuple | dict):
        yield from _match_container(expected, node, tolerance, path)
    elif not isinstance(node, ValueNode) or type(node.value) is not type(expected):
        yield f"{path}: expected {describe(expected)}, received {describe_node(node)}"
    elif not _same_scalar(expected, node.value, tolerance):
        yield f"{path}: expected the value {expected!r}, received {node.value!r}"


def _match_container(
    expected: list[Any] | tuple[Any, ...] | dict[Any, Any], node: Node, tolerance: Tolerance, path: str
) -> Iterator[Pair | str]:
    if isinstance(expected, dict):
        keys = [str(key) for key in expected]
        if not isinstance(node, DictNode) or sorted(key for key, _ in node.items) != sorted(keys):
            yield f"{path}: expected {describe(expected)}, received {describe_node(node)}"
            return
        items = dict(node.items)
        for key, value in expected.items():
            yield from match(value, items[str(key)], tolerance, f"{path}[{key!r}]")
        return
    kind = type(expected).__name__.lower()  # list, tuple, size
    if not isinstance(node, SequenceNode) or node.kind != kind or len(node.items) != len(expected):
        yield f"{path}: expected {describe(expected)}, received {describe_node(node)}"
        return
    for index, (value, item) in enumerate(zip(expected, node.items, strict=True)):
        yield from match(value, item, tolerance, f"{path}[{index}]")


def _match_leaf(leaf: Leaf, node: Node, path: str) -> Iterator[Pair | str]:
    if isinstance(leaf.rule, Free):
        return
    if not isinstance(node, TensorNode):
        yield f"{path}: expected {describe(leaf)}, received {describe_node(node)}"
        return
    wrong = []
    if node.class_name != "torch.Tensor" or node.extra:
        wrong.append("must be a plain torch.Tensor without attributes of its own")
    if node.shape != tuple(leaf.value.shape) or node.dtype != leaf.dtype:
        wrong.append(f"expected {describe(leaf)}, received {describe_node(node)}")
    device = "cpu" if leaf.device == "cpu" else node.home
    if node.device != device:
        wrong.append(f"expected on the device {device}, received on {node.device}")
    if node.layout != "strided":
        wrong.append(f"expected a dense tensor, received the layout {node.layout}")
    if node.overlap:
        wrong.append("elements of the tensor share memory with each other; return a tensor without overlap")
    if wrong:
        yield f"{path}: {'; '.join(wrong)}"
    else:
        yield Pair(path, leaf, node)


def tensors(node: Node) -> Iterator[TensorNode]:
    """Every tensor of an output, in the order of delivery."""
    if isinstance(node, TensorNode):
        yield node
    elif isinstance(node, SequenceNode):
        for item in node.items:
            yield from tensors(item)
    elif isinstance(node, DictNode):
        for _, item in node.items:
            yield from tensors(item)


def leaves(expected: Any) -> Iterator[Leaf]:
    """Every expected tensor, in the order in which a matching output delivers them."""
    if isinstance(expected, Leaf):
        yield expected
    elif isinstance(expected, list | tuple):
        for item in expected:
            yield from leaves(item)
    elif isinstance(expected, dict):
        for item in expected.values():
            yield from leaves(item)


def describe(expected: Any) -> str:
    """An expected value in words, as feedback may show it."""
    if isinstance(expected, Leaf):
        return _tensor_words(leaf_shape(expected), expected.dtype)
    if isinstance(expected, dict):
        return f"a dict with the keys {sorted(map(str, expected))}"
    if isinstance(expected, list | tuple):
        name = "torch.Size" if isinstance(expected, torch.Size) else type(expected).__name__
        return f"a {name} of {len(expected)}"
    return "None" if expected is None else f"a {type(expected).__name__}"


def leaf_shape(leaf: Leaf) -> tuple[int, ...]:
    return tuple(leaf.value.shape)


def describe_node(node: Node) -> str:
    """A delivered value in words."""
    match node:
        case TensorNode():
            return _tensor_words(node.shape, node.dtype)
        case ValueNode():
            return "None" if node.value is None else f"a {type(node.value).__name__}"
        case SequenceNode():
            return f"a {'torch.Size' if node.kind == 'size' else node.kind} of {len(node.items)}"
        case DictNode():
            return f"a dict with the keys {sorted(key for key, _ in node.items)[:20]}"
        case OtherNode():
            return node.words


def _tensor_words(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"a tensor of shape {shape} and dtype {str(dtype).removeprefix('torch.')}"


def _same_scalar(expected: Any, received: Any, tolerance: Tolerance) -> bool:
    if isinstance(expected, float):
        allowed = tolerance.relative * abs(expected)
        return (
            abs(received - expected) <= allowed
            or received == expected
            or (expected != expected and received != received)
        )
    return bool(expected == received)
