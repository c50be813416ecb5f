"""Shared memory regions and how arguments lie in them: the judge's half of evaluator.runner.values."""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch

from evaluator.judge.frames import TensorNode
from evaluator.judge.quick import same_bytes
from evaluator.runner.values import LENGTH_BYTES, aligned
from evaluator.runner.wire import BadFrame
from problems.suite.base import Args, Group

Partition = tuple[tuple[int, ...], ...]


class Region:
    """Memory shared with one rank. Sealed: the rank can write every byte but neither shrink nor grow it."""

    def __init__(self, size: int) -> None:
        self.size = max(aligned(size), mmap.PAGESIZE)
        self.descriptor = os.memfd_create("region", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.descriptor, self.size)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        self.map = mmap.mmap(self.descriptor, self.size, flags=mmap.MAP_SHARED)
        self.bytes = torch.frombuffer(self.map, dtype=torch.uint8)

    def read(self, node: TensorNode) -> torch.Tensor:
        """A copy of the output tensor that a rank delivered; its place was checked when the node was parsed."""
        return self.view(node).clone()

    def view(self, node: TensorNode) -> torch.Tensor:
        """``read`` without the copy, for a look while the rank stands still; must be gone before ``close``."""
        assert node.offset is not None
        raw = self.bytes[node.offset : node.offset + node.nbytes]
        return raw.view(node.dtype).view(node.shape) if node.nbytes else torch.empty(node.shape, dtype=node.dtype)

    def read_text(self) -> bytes:
        """The text that a rank wrote with ``Region.write_text``. Raises BadFrame if there is none."""
        size = int.from_bytes(self.map[:LENGTH_BYTES], "little")
        if size > self.size - LENGTH_BYTES:
            raise BadFrame(f"text of {size} bytes in a region of {self.size}")
        return self.map[LENGTH_BYTES : LENGTH_BYTES + size]

    def close(self) -> None:
        """Gives the memory back once the rank is gone too."""
        os.close(self.descriptor)
        del self.bytes
        self.map.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Piece:
    """Bytes of one tensor of the arguments. ``name`` is the argument's; ``offset`` counts from the slot's start."""

    name: str
    offset: int
    data: torch.Tensor
    like: torch.Tensor
    """A tensor with the dtype, shape and strides that the rank sees."""

    def read(self, region: Region, start: int) -> torch.Tensor:
        """A copy of what the argument's tensor holds now."""
        begin = start + self.offset
        flat = region.bytes[begin : begin + len(self.data)].clone().view(self.like.dtype)
        return flat.as_strided(self.like.shape, self.like.stride())


@dataclass(frozen=True)
class Encoded:
    """The arguments of one rank for one call, ready to be written into a slot of its input region."""

    tree: list[dict[str, Any]]
    pieces: tuple[Piece, ...]
    size: int

    def placed(self, start: int) -> list[dict[str, Any]]:
        """The description with offsets for a slot that begins at ``start``."""
        return [_moved(node, start) for node in self.tree]

    def write(self, region: Region, start: int) -> None:
        """Writes the arguments into the slot."""
        for piece in self.pieces:
            begin = start + piece.offset
            region.bytes[begin : begin + len(piece.data)].copy_(piece.data)

    def changed(self, region: Region, start: int) -> list[str]:
        """Names of arguments whose bytes in the slot are not what was written."""
        names = []
        for piece in self.pieces:
            begin = start + piece.offset
            if not same_bytes(region.bytes[begin : begin + len(piece.data)], piece.data):
                names.append(piece.name)
        return list(dict.fromkeys(names))

    def named(self, offset: int) -> str:
        """The argument whose tensor holds that offset of the slot; "" if none does."""
        for piece in self.pieces:
            if piece.offset <= offset < piece.offset + len(piece.data):
                return piece.name
        return ""


def encode(arguments: Args, partitions: list[Partition], replaced: Sequence[str] = ()) -> Encoded:
    """Lays the arguments of one rank out. Groups are named by their place in ``partitions``.

    What the lists named in ``replaced`` hold after the call is delivered behind the output.
    """
    encoder = _Encoder(partitions)
    tree = [encoder.node(name, value) for name, value in arguments.items()]
    for node, name in zip(tree, arguments, strict=True):
        if name in replaced:
            node["replaced"] = True
    return Encoded(tree, tuple(encoder.pieces), encoder.offset)


def partitions_of(arguments: list[Args]) -> Iterator[Partition]:
    """Every partition that an argument of any rank names."""
    waiting = [value for rank in arguments for value in rank.values()]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Group):
            yield value.partition
        elif isinstance(value, list | tuple):
            waiting.extend(value)


class _Encoder:
    def __init__(self, partitions: list[Partition]) -> None:
        self.partitions = partitions
        self.pieces: list[Piece] = []
        self.offset = 0

    def node(self, name: str, value: Any) -> dict[str, Any]:
        if isinstance(value, torch.Tensor):
            return self.tensor(name, value) if value.layout is torch.strided else self.sparse(name, value)
        if isinstance(value, torch.nn.Linear):
            bias = {"t": "value", "v": None} if value.bias is None else self.tensor(name, value.bias)
            return {"t": "linear", "weight": self.tensor(name, value.weight), "bias": bias}
        if isinstance(value, Group):
            return {"t": "group", "index": self.partitions.index(value.partition)}
        if isinstance(value, list | tuple):
            kind = type(value).__name__.lower()  # list, tuple, size
            return {"t": kind, "items": [self.node(name, item) for item in value]}
        if isinstance(value, float):
            return {"t": "float", "v": value.hex()}
        if value is None or isinstance(value, bool | int | str):
            return {"t": "value", "v": value}
        raise TypeError(f"argument {name} is a {type(value).__name__}, which no problem may pass")

    def tensor(self, name: str, value: torch.Tensor) -> dict[str, Any]:
        plain = value.detach()
        dense = _dense(plain)
        flat = plain.as_strided((plain.numel(),), (1,)) if dense else plain.contiguous().view(-1)
        node = {
            "t": "tensor",
            "dtype": str(plain.dtype).removeprefix("torch."),
            "shape": list(plain.shape),
            "stride": list(plain.stride()) if dense and not plain.is_contiguous() else None,
            "offset": self.offset,
            "grad": value.requires_grad,
        }
        if plain.numel():
            data = flat.view(torch.uint8)
            self.pieces.append(Piece(name, self.offset, data, plain if dense else plain.contiguous()))
            self.offset = aligned(self.offset + len(data))
        return node

    def sparse(self, name: str, value: torch.Tensor) -> dict[str, Any]:
        if value.layout is not torch.sparse_coo:
            raise TypeError(f"argument {name} has the layout {value.layout}; dense and COO are possible")
        return {
            "t": "sparse",
            "indices": self.tensor(name, value._indices()),
            "values": self.tensor(name, value._values()),
            "shape": list(value.shape),
            "coalesced": value.is_coalesced(),
        }


def _dense(value: torch.Tensor) -> bool:
    """True if the elements fill their part of the storage without gaps or overlap, in whatever order."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(value.stride(), value.shape, strict=True) if n > 1):
        if stride != expected:
            return False
        expected *= size
    return True


def _moved(node: dict[str, Any], start: int) -> dict[str, Any]:
    match node["t"]:
        case "tensor":
            return {**node, "offset": node["offset"] + start}
        case "list" | "tuple" | "size":
            return {**node, "items": [_moved(item, start) for item in node["items"]]}
        case "linear":
            return {**node, "weight": _moved(node["weight"], start), "bias": _moved(node["bias"], start)}
        case "sparse":
            return {**node, "indices": _moved(node["indices"], start), "values": _moved(node["values"], start)}
        case _:
            return node
