"""Arguments out of the input region, outputs into the output region.

The judge lays arguments out in a rank's input region and sends their description as a JSON tree; outputs are copied
back to back into the output region, each at the next multiple of ALIGNMENT, and described as a tree in turn.

Argument nodes ("t" is the kind):
  tensor  dtype, shape, stride, offset (bytes from the start of the region), grad
  sparse  indices, values (tensor nodes), shape, coalesced
  value   v: None, a bool, an int or a str;   float  v: hexadecimal
  list, tuple, size (a torch.Size)  items;   linear  weight, bias (nodes);   group  index of the launch's partitions
Output nodes:
  tensor  dtype, shape, class, device, layout, overlap, extra (attributes set on it), alias (offset in the input region)
  value, float as above;   list, tuple, size, dict  items;   other  words that say what it is
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Sequence
from typing import Any

import torch

ALIGNMENT = 64
MAX_NODES = 400
MAX_DEPTH = 12
LENGTH_BYTES = 8  # before a text in a region

# Taken before any submission is imported, so that a later change of these names does not reach the copies below.
_frombuffer = torch.frombuffer
_view_as = torch.Tensor.view
_as_strided = torch.Tensor.as_strided
_copy = torch.Tensor.copy_
_detach = torch.Tensor.detach
_data_ptr = torch.Tensor.data_ptr
_Tensor = torch.Tensor


class TooLarge(Exception):
    """Outputs need more room or have more parts than the judge allows: they cannot be the expected ones."""


def aligned(offset: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class Region:
    """A shared memory region of one rank."""

    device = torch.device("cpu")  # of the tensors made of it

    def __init__(self, descriptor: int) -> None:
        # Every page is there before the first call, so that no call pays for page faults.
        self.map = mmap.mmap(descriptor, 0, flags=mmap.MAP_SHARED | mmap.MAP_POPULATE)
        self.size = len(self.map)
        self.address = _data_ptr(_frombuffer(self.map, dtype=torch.uint8, count=1))

    def tensor(
        self, dtype: torch.dtype, shape: Sequence[int], stride: Sequence[int] | None, offset: int
    ) -> torch.Tensor:
        """A tensor with its own storage over the bytes from ``offset`` on."""
        count = math.prod(shape)
        if count == 0:
            return torch.empty(tuple(shape), dtype=dtype)
        flat = _frombuffer(self.map, dtype=dtype, count=count, offset=offset)
        return _view_as(flat, tuple(shape)) if stride is None else _as_strided(flat, tuple(shape), tuple(stride))

    @property
    def room(self) -> int:
        """Bytes of the longest text that ``write_text`` takes."""
        return self.size - LENGTH_BYTES

    def write_text(self, text: bytes) -> None:
        """Puts a text at the start of the region, its length before it. Raises ValueError if it is too long."""
        if len(text) > self.room:
            raise ValueError(f"a text of {len(text)} bytes in a region of {self.size}")
        self.map[:LENGTH_BYTES] = len(text).to_bytes(LENGTH_BYTES, "little")
        self.map[LENGTH_BYTES : LENGTH_BYTES + len(text)] = text


def build(node: dict[str, Any], region: Region, groups: Sequence[Any]) -> Any:
    """The argument that a node describes; its bytes need not be there yet."""
    match node["t"]:
        case "tensor":
            tensor = region.tensor(getattr(torch, node["dtype"]), node["shape"], node["stride"], node["offset"])
            return tensor.requires_grad_() if node["grad"] else tensor
        case "value":
            return node["v"]
        case "float":
            return float.fromhex(node["v"])
        case "list":
            return [build(item, region, groups) for item in node["items"]]
        case "tuple":
            return tuple(build(item, region, groups) for item in node["items"])
        case "size":
            return torch.Size([build(item, region, groups) for item in node["items"]])
        case "group":
            return groups[node["index"]]
        case "linear":
            return _linear(build(node["weight"], region, groups), build(node["bias"], region, groups))
        case "sparse":
            indices, values = build(node["indices"], region, groups), build(node["values"], region, groups)
            return torch.sparse_coo_tensor(
                indices, values, tuple(node["shape"]), is_coalesced=node["coalesced"], check_invariants=False
            )
        case other:
            raise ValueError(f"unknown argument node {other!r}")


def _linear(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.nn.Linear:
    """A torch.nn.Linear whose parameters are the given tensors, not copies."""
    out_features, in_features = weight.shape
    module = torch.nn.Linear(in_features, out_features, bias=bias is not None, device="meta")
    module.weight = torch.nn.Parameter(weight.detach(), requires_grad=weight.requires_grad)
    if bias is not None:
        module.bias = torch.nn.Parameter(bias.detach(), requires_grad=bias.requires_grad)
    return module


def deliver(output: Any, target: Region, source: Region) -> dict[str, Any]:
    """Copies the tensors of ``output`` into ``target`` and describes its structure. Raises TooLarge."""
    return _Delivery(target, source).node(output, 0)


class _Delivery:
    def __init__(self, target: Region, source: Region) -> None:
        self.target = target
        self.source = source
        self.offset = 0
        self.nodes = 0

    def node(self, value: Any, depth: int) -> dict[str, Any]:
        self.nodes += 1
        kind = type(value)
        if self.nodes > MAX_NODES or depth > MAX_DEPTH:
            raise TooLarge(f"a structure of more than {MAX_NODES} parts or {MAX_DEPTH} levels")
        if kind is _Tensor:
            return self.tensor(value)
        if value is None or kind is bool or (kind is int and abs(value) < 2**63):
            return {"t": "value", "v": value}
        if kind is str:
            return {"t": "value", "v": str(value)[:1024]}
        if kind is float:
            return {"t": "float", "v": value.hex()}
        if kind in (list, tuple, torch.Size):
            return {"t": kind.__name__.lower(), "items": [self.node(item, depth + 1) for item in value]}
        if kind is dict:
            return {"t": "dict", "items": [[str(key)[:200], self.node(item, depth + 1)] for key, item in value.items()]}
        return {"t": "other", "words": f"an object of {kind.__module__}.{kind.__qualname__}"[:200]}

    def tensor(self, value: torch.Tensor) -> dict[str, Any]:
        home = value.device == self.source.device
        dense = value.layout is torch.strided and (home or value.device.type == "cpu")
        node: dict[str, Any] = {
            "t": "tensor",
            "dtype": str(value.dtype).removeprefix("torch."),
            "shape": list(value.shape),
            "class": "torch.Tensor",
            "device": str(value.device),
            "layout": str(value.layout).removeprefix("torch."),
            "overlap": dense and _overlaps(value),
            "extra": bool(value.__dict__),
            "alias": _alias(value, self.source) if dense and home else None,
        }
        if dense:
            size = value.numel() * value.element_size()
            if self.offset + size > self.target.size:
                raise TooLarge(f"outputs of more than {self.target.size} bytes")
            if size:
                _copy(self.target.tensor(value.dtype, value.shape, None, self.offset), _detach(value))
            self.offset = aligned(self.offset + size)
        return node


def _overlaps(value: torch.Tensor) -> bool:
    """True if two elements may share memory. Strided slices of dense tensors are found free of overlap."""
    reach = 0
    for stride, size in sorted((s, n) for s, n in zip(value.stride(), value.shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += (size - 1) * stride
    return False


def _alias(value: torch.Tensor, region: Region) -> int | None:
    """Offset in the input region at which the tensor begins; None if it does not lie there."""
    offset = _data_ptr(value) - region.address
    return offset if 0 <= offset < region.size and value.numel() else None
