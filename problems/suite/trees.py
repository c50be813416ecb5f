"""Arguments and outputs as trees: lists, tuples, dicts and modules with tensors at their leaves."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from problems.suite.base import Args, Expected, Leaf


def map_tensors(value: Any, change: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    """The same structure with ``change`` applied to every tensor, parameters of modules included; a new structure."""
    if isinstance(value, torch.nn.Module):
        module = copy.deepcopy(value)
        for parameter in module.parameters():
            parameter.data = change(parameter.detach())
        return module
    if isinstance(value, torch.Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: map_tensors(item, change) for key, item in value.items()}
    if isinstance(value, list | tuple):
        items = [map_tensors(item, change) for item in value]
        return items if isinstance(value, list) else type(value)(items)
    return value


def map_args(args: Args, change: Callable[[torch.Tensor], torch.Tensor]) -> Args:
    """``map_tensors`` over the arguments of one rank."""
    return {name: map_tensors(value, change) for name, value in args.items()}


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Every tensor of a tree, parameters of modules included."""
    if isinstance(value, torch.nn.Module):
        yield from (parameter.detach() for parameter in value.parameters())
    elif isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from tensors(item)


def leaves(expected: Expected) -> Iterator[tuple[str, Leaf]]:
    """Every expected tensor of a rank with its path: "output", "output.1", "arg:grads.0"."""
    yield from _leaves(expected.output, "output")
    for name, value in expected.mutated.items():
        yield from _leaves(value, f"arg:{name}")


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Leaf]]:
    if isinstance(tree, Leaf):
        yield path, tree
    elif isinstance(tree, dict):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}.{key}")
    elif isinstance(tree, list | tuple):
        for index, value in enumerate(tree):
            yield from _leaves(value, f"{path}.{index}")


def map_leaves(tree: Any, change: Callable[[Leaf], Any]) -> Any:
    """The structure of an expected output with ``change`` applied to every leaf."""
    if isinstance(tree, Leaf):
        return change(tree)
    if isinstance(tree, dict):
        return {key: map_leaves(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        items = [map_leaves(value, change) for value in tree]
        return items if isinstance(tree, list) else type(tree)(items)
    return tree
