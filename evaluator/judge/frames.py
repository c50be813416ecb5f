"""What the sandbox may say: every packet becomes one of these messages or a BadFrame, whatever its bytes are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from evaluator.runner.values import MAX_DEPTH, MAX_NODES, aligned
from evaluator.runner.wire import BadFrame, unpack

MAX_DIMENSIONS = 16
MAX_EXTENT = 2**40

DTYPES: dict[str, torch.dtype] = {
    str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)
}


class _Message(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


Nonce = Annotated[str, Field(max_length=64)]


class Up(_Message):
    """The fork server has imported torch."""

    kind: Literal["up"] = Field(alias="is")
    torch: Annotated[str, Field(max_length=100)]
    python: Annotated[str, Field(max_length=100)]


class Exit(_Message):
    """A rank's process ended with this exit status, negative for the number of a signal."""

    kind: Literal["exit"] = Field(alias="is")
    launch: int
    rank: Annotated[int, Field(ge=0, lt=16)]
    status: Annotated[int, Field(ge=-128, le=255)]


class Answer(_Message):
    """A rank or the fork server has done what the message with that nonce asked for."""

    kind: Literal[
        "initialised", "compiled", "imported", "ready", "prepared", "loaded", "cleared", "watching", "recorded"
    ] = Field(alias="is")
    nonce: Nonce


class Done(_Message):
    """A call has returned; ``output`` describes its structure and is parsed by ``parse_structure``.

    ``seconds``: how long the rank says it took. On a CPU nothing rests on that, see ``judge.crosscheck``.
    """

    kind: Literal["done"] = Field(alias="is")
    nonce: Nonce
    output: dict[str, Any]
    seconds: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None


class Error(_Message):
    """An exception in a rank."""

    kind: Literal["error"] = Field(alias="is")
    nonce: Nonce
    type: Annotated[str, Field(max_length=200)]
    message: Annotated[str, Field(max_length=2_000)]
    traceback: Annotated[str, Field(max_length=8_000)]
    errno: int | None


Frame = Up | Exit | Answer | Done | Error
_FRAME: TypeAdapter[Frame] = TypeAdapter(Annotated[Frame, Field(discriminator="kind")])


def parse(packet: bytes) -> Frame:
    """The message of a packet from the sandbox. Raises BadFrame for anything else."""
    message = unpack(packet)
    try:
        return _FRAME.validate_python(message)
    except (ValidationError, RecursionError) as error:
        raise BadFrame(f"message that the runner never sends: {str(message)[:200]}") from error


@dataclass(frozen=True)
class TensorNode:
    """A tensor as a rank describes it; its bytes, if dense and on the rank's device or the host lie at ``offset``."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    class_name: str
    device: str
    layout: str
    overlap: bool
    extra: bool
    alias: int | None
    offset: int | None
    home: str = "cpu"
    """The rank's device, on which it must be unless the problem wants it on the host."""

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class ValueNode:
    """None, a bool, an int, a float or a str."""

    value: bool | int | float | str | None


@dataclass(frozen=True)
class SequenceNode:
    kind: Literal["list", "tuple", "size"]
    items: tuple[Node, ...]


@dataclass(frozen=True)
class DictNode:
    items: tuple[tuple[str, Node], ...]


@dataclass(frozen=True)
class OtherNode:
    """An object of another class, or something that could not be described: in words."""

    words: str


Node = TensorNode | ValueNode | SequenceNode | DictNode | OtherNode


def parse_structure(described: Any, capacity: int, home: str = "cpu") -> Node:
    """The structure of an output from a rank's description of it, with offsets into a region of ``capacity`` bytes.

    ``home``: the device of the rank.

    Raises BadFrame for what the runner never sends, bytes beyond the region among it.
    """
    return _Structure(capacity, home).node(described, 0)


class _Structure:
    def __init__(self, capacity: int, home: str) -> None:
        self.capacity = capacity
        self.home = home
        self.offset = 0
        self.nodes = 0

    def node(self, described: Any, depth: int) -> Node:
        self.nodes += 1
        if self.nodes > MAX_NODES + 1 or depth > MAX_DEPTH + 1:
            raise BadFrame(f"output described with more than {MAX_NODES} parts or deeper than {MAX_DEPTH}")
        try:
            match described["t"]:
                case "tensor":
                    return self.tensor(described)
                case "value":
                    return ValueNode(_scalar(described["v"]))
                case "float":
                    return ValueNode(float.fromhex(described["v"]))
                case "list" | "tuple" | "size" as kind:
                    return SequenceNode(kind, tuple(self.node(item, depth + 1) for item in _listed(described)))
                case "dict":
                    pairs = [(str(key), self.node(item, depth + 1)) for key, item in _listed(described)]
                    return DictNode(tuple(pairs))
                case "other":
                    return OtherNode(str(described["words"])[:200])
                case _:
                    raise BadFrame("output described with an unknown kind of part")
        except BadFrame:
            raise
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise BadFrame(f"output described in a way the runner never does: {type(error).__name__}") from error

    def tensor(self, described: dict[str, Any]) -> TensorNode:
        shape = tuple(described["shape"])
        if len(shape) > MAX_DIMENSIONS or not all(type(n) is int and 0 <= n < MAX_EXTENT for n in shape):
            raise BadFrame(f"tensor described with the shape {str(shape)[:200]}")
        alias = described["alias"]
        near = (self.home, "cpu")
        node = TensorNode(
            dtype=DTYPES[described["dtype"]],
            shape=shape,
            class_name=str(described["class"])[:200],
            device=str(described["device"])[:50],
            home=self.home,
            layout=str(described["layout"])[:50],
            overlap=bool(described["overlap"]),
            extra=bool(described["extra"]),
            alias=alias if type(alias) is int else None,
            offset=self.offset if described["layout"] == "strided" and described["device"] in near else None,
        )
        if node.offset is not None:
            if node.offset + node.nbytes > self.capacity:
                raise BadFrame(f"outputs described as longer than the region of {self.capacity} bytes")
            self.offset = aligned(node.offset + node.nbytes)
        return node


def _scalar(value: Any) -> bool | int | str | None:
    if value is None or type(value) in (bool, int, str):
        return value  # type: ignore[no-any-return]
    raise BadFrame(f"value described as a {type(value).__name__}")


def _listed(described: dict[str, Any]) -> list[Any]:
    items = described["items"]
    if not isinstance(items, list):
        raise BadFrame("items that are no list")
    return items
