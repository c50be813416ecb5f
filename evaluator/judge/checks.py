"""What a call has left in the regions, and whether it is what the oracle expects.

A snapshot is taken while the job stands still; checking it needs the job no more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from evaluator.judge.endpoint import Endpoint
from evaluator.judge.frames import Node, SequenceNode, TensorNode
from evaluator.judge.launch import Call, Launch
from evaluator.judge.layout import Encoded
from evaluator.judge.oracles import compare_there
from evaluator.judge.quick import Fingerprint, same_bytes
from evaluator.judge.structure import Pair, describe_node, leaves, match, tensors
from problems.suite.base import Case, Expected, Problem, Tolerance
from problems.suite.compare import Comparison, publicly_close


@dataclass(frozen=True)
class RankSnapshot:
    """Outputs and arguments of one rank as they stood at the end of a call."""

    node: Node
    values: tuple[torch.Tensor | None, ...]
    """Tensors of the output in order of delivery; None for those that could not be copied."""
    changed: tuple[str, ...]
    """Arguments whose bytes are not what the judge wrote."""
    arguments: dict[str, list[torch.Tensor]]
    """What the arguments that may be changed hold now."""
    aliases: tuple[str, ...]
    """For each tensor of the output the argument in whose memory it begins, or ""."""

    def same_as(self, other: RankSnapshot) -> bool:
        """True if both hold the same to the bit."""
        if (self.node, self.changed, self.aliases) != (other.node, other.changed, other.aliases):
            return False
        mine, theirs = ([*x.values, *(t for held in x.arguments.values() for t in held)] for x in (self, other))
        return all(_same_bits(one, two) for one, two in zip(mine, theirs, strict=True))

    def value(self, pair: Pair) -> torch.Tensor:
        """The delivered tensor of a pair."""
        for node, value in zip(tensors(self.node), self.values, strict=True):
            if node is pair.node:
                assert value is not None
                return value
        raise KeyError(pair.path)


def _same_bits(one: torch.Tensor | None, other: torch.Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return same_bytes(*(x.contiguous().view(-1).view(torch.uint8) for x in (one, other)))


def take(
    launch: Launch, call: Call, arguments: Sequence[Encoded], start: int, *, in_place: Sequence[str]
) -> list[RankSnapshot]:
    """Copies all that a check needs out of the regions; of the arguments those that may be changed ``in_place``."""
    return [
        take_rank(end, node, encoded, start, in_place=in_place)
        for end, node, encoded in zip(launch.ends, call.outputs, arguments, strict=True)
    ]


def take_rank(end: Endpoint, node: Node, encoded: Encoded, start: int, *, in_place: Sequence[str]) -> RankSnapshot:
    """The snapshot of one rank, which must not be in a call."""
    nodes = list(tensors(node))
    changed = encoded.changed(end.source, start)
    held = {name: [p.read(end.source, start) for p in encoded.pieces if p.name == name] for name in in_place}
    aliases = tuple("" if n.alias is None else encoded.named(n.alias - start) for n in nodes)
    values = tuple(None if n.offset is None else end.target.read(n) for n in nodes)
    return RankSnapshot(node, values, tuple(changed), held, aliases)


_fingerprint = Fingerprint()


def digest(launch: Launch, call: Call) -> bytes:
    """Digest of all tensors that a call delivered; nobody but this process can compute it."""
    hashed = hashlib.blake2b(digest_size=16)
    for end, output in zip(launch.ends, call.outputs, strict=True):
        for node in tensors(output):
            if node.offset is not None and node.nbytes:
                hashed.update(_fingerprint(end.target.bytes[node.offset : node.offset + node.nbytes]))
    return hashed.digest()


@dataclass
class RankCheck:
    """Verdict on one rank's part of a call."""

    rank: int
    structure: list[str] = field(default_factory=list)
    """What is wrong with the structure, with aliasing or with changed inputs: one sentence each."""
    compared: list[tuple[Pair, torch.Tensor, Comparison]] = field(default_factory=list)

    @property
    def refused(self) -> list[tuple[Pair, torch.Tensor, Comparison]]:
        return [entry for entry in self.compared if not entry[2].passed]

    @property
    def passed(self) -> bool:
        return not self.structure and not self.refused

    @property
    def max_error(self) -> float | None:
        known = [comparison.max_error for _, _, comparison in self.compared if comparison.max_error is not None]
        return max(known, default=None)

    @property
    def bad_fraction(self) -> float | None:
        return max((comparison.bad_fraction for _, _, comparison in self.compared), default=None)


def check(
    problem: Problem, case: Case, expected: Sequence[Expected], snapshots: Sequence[RankSnapshot]
) -> list[RankCheck]:
    """Compares every rank's part with its own expected result."""
    return [
        _check_rank(problem, case, rank, wanted, snapshot)
        for rank, (wanted, snapshot) in enumerate(zip(expected, snapshots, strict=True))
    ]


def _check_rank(problem: Problem, case: Case, rank: int, wanted: Expected, snapshot: RankSnapshot) -> RankCheck:
    result = RankCheck(rank)
    tolerance = problem.tolerance(case.dtype)
    for found in _delivered(problem, wanted, snapshot.node, tolerance):
        if isinstance(found, str):
            result.structure.append(found)
        else:
            value = snapshot.value(found)
            result.compared.append((found, value, compare_there(problem, found.leaf, value, tolerance)))
    in_place = {*problem.may_mutate, *wanted.mutated}
    for node, alias in zip(tensors(snapshot.node), snapshot.aliases, strict=True):
        if alias and alias not in {*in_place, *problem.may_alias}:
            shape = tuple(node.shape)
            result.structure.append(
                f"output of shape {shape} lies in the memory of the input {alias}; return new memory"
            )
    for name in snapshot.changed:
        if name not in in_place:
            result.structure.append(f"the input {name} was changed; inputs must keep their values")
    _check_mutated(result, wanted, snapshot, problem, case)
    return result


def _delivered(problem: Problem, wanted: Expected, node: Node, tolerance: Tolerance) -> Iterator[Pair | str]:
    """Matches the output, and behind it the lists whose entries the problem has replaced."""
    if not problem.replaces:
        yield from match(wanted.output, node, tolerance)
        return
    if not isinstance(node, SequenceNode) or len(node.items) != 1 + len(problem.replaces):
        yield f"output: {describe_node(node)}"  # larger than any that is expected
        return
    yield from match(wanted.output, node.items[0], tolerance)
    for name, item in zip(problem.replaces, node.items[1:], strict=True):
        yield from match(wanted.mutated[name], item, tolerance, f"{name} after the call")


def _check_mutated(result: RankCheck, wanted: Expected, snapshot: RankSnapshot, problem: Problem, case: Case) -> None:
    """Compares arguments that must be changed in place with what they must hold."""
    for name, value in wanted.mutated.items():
        if name in problem.replaces:
            continue
        for index, (leaf, tensor) in enumerate(zip(leaves(value), snapshot.arguments[name], strict=True)):
            comparison = compare_there(problem, leaf, tensor, problem.tolerance(case.dtype))
            pair = Pair(f"{name}[{index}] after the call", leaf, _argument_node(tensor))
            result.compared.append((pair, tensor, comparison))


def _argument_node(tensor: torch.Tensor) -> TensorNode:
    return TensorNode(tensor.dtype, tuple(tensor.shape), "torch.Tensor", "cpu", "strided", False, False, None, None)


def publicly_refused(reference: Sequence[RankCheck], candidate: Sequence[RankCheck]) -> float:
    """Largest share of a tensor's elements that the public rule refuses, over all tensors of all ranks.

    The rule: allclose after float at 1e-2 against the reference's output. 1.0 where structures differ.
    """
    worst = 0.0
    for ours, theirs in zip(reference, candidate, strict=True):
        wanted = {pair.path: value for pair, value, _ in ours.compared}
        got = {pair.path: value for pair, value, _ in theirs.compared}
        if theirs.structure or wanted.keys() != got.keys():
            return 1.0
        worst = max([worst, *(_share_refused(got[path], value) for path, value in wanted.items())])
    return worst


def _share_refused(value: torch.Tensor, reference: torch.Tensor) -> float:
    if publicly_close(value, reference):
        return 0.0
    if value.shape != reference.shape:
        return 1.0
    a, b = (x.to(torch.complex64) if x.is_complex() else x.float() for x in (value, reference))
    return float((~torch.isclose(a, b, rtol=1e-2, atol=1e-2)).double().mean())
