"""Arithmetic expressions of the golden files: a small, closed part of Python's notation over numbers and tensors."""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def _elementwise(
    scalar: Callable[[float], float], tensor: Callable[[torch.Tensor], torch.Tensor]
) -> Callable[[Any], Any]:
    return lambda x: tensor(x.to(torch.float64)) if isinstance(x, torch.Tensor) else scalar(x)


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": abs,
    "sin": _elementwise(math.sin, torch.sin),
    "cos": _elementwise(math.cos, torch.cos),
    "sqrt": _elementwise(math.sqrt, torch.sqrt),
    "exp": _elementwise(math.exp, torch.exp),
    "min": min,
    "max": max,
    "sum": lambda x: int(x.sum()) if isinstance(x, torch.Tensor) else sum(x),
    "len": len,
    "int": int,
    "float": float,
}


def evaluate(expression: Any, names: Mapping[str, Any]) -> Any:
    """Value of an expression (text); anything but text is its own value. Raises ValueError for what it does not know.

    Where a name holds a tensor the arithmetic is element by element, also in ``a if c else b``.
    """
    if not isinstance(expression, str):
        return expression
    return _value(ast.parse(expression, mode="eval").body, names, expression)


def _value(node: ast.expr, names: Mapping[str, Any], text: str) -> Any:
    def value(inner: ast.expr) -> Any:
        return _value(inner, names, text)

    match node:
        case ast.Constant(value=constant):
            return constant
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [value(item) for item in items]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](value(left), value(right))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -value(operand)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return _negated(value(operand))
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
            return _COMPARE[type(op)](value(left), value(right))
        case ast.BoolOp(op=op, values=[first, *others]):
            return _joined(isinstance(op, ast.And), value(first), [value(other) for other in others])
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return _chosen(value(test), lambda: value(body), lambda: value(orelse))
        case ast.Subscript(value=inner, slice=index):
            return value(inner)[value(index)]
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name](*map(value, arguments))
    raise ValueError(f"{ast.unparse(node)!r} in {text!r} is not known here; names: {', '.join(sorted(names))}")


def _negated(x: Any) -> Any:
    return ~x if isinstance(x, torch.Tensor) else not x


def _joined(both: bool, first: Any, others: list[Any]) -> Any:
    result = first
    for other in others:
        if isinstance(result, torch.Tensor) or isinstance(other, torch.Tensor):
            result = result & other if both else result | other
        else:
            result = (result and other) if both else (result or other)
    return result


def _chosen(test: Any, body: Callable[[], Any], orelse: Callable[[], Any]) -> Any:
    if not isinstance(test, torch.Tensor):
        return body() if test else orelse()
    return torch.where(test, torch.as_tensor(body()), torch.as_tensor(orelse()))
