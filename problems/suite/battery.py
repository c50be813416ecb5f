"""Answers that must be refused and answers that must pass, built from a problem's oracle.

The cheap cheats: zeros, the mean, a copy of an input, the own rank's data alone, one rank or one chunk missing, one
precision lower, the answer to other inputs. The honest variants differ from the oracle by rounding only. All are
compared as the judge compares; a row's ratio is the error in units of the tolerance, so cheats must come out above 1,
honest variants below, both with a margin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from problems.suite.base import Args, Case, Expected, Free, Leaf, Problem, Tolerance
from problems.suite.compare import compare
from problems.suite.ranks import RankResult
from problems.suite.trees import leaves, map_args, map_leaves, map_tensors, tensors

CHUNK = 8  # the missing chunk is the last eighth
HALF_CHEATS = ("narrow_inputs", "narrow_outputs")
"""A narrower format for a part of the way only: nearer to honest rounding by nature."""
T = TypeVar("T")
Ratios = Mapping[str, float]
"""Path of an output -> error in units of the tolerance, the largest over the ranks."""


@dataclass(frozen=True)
class Trial:
    """One case of a problem: what goes in and what must come out."""

    problem: Problem
    case: Case
    args: list[Args]
    expected: list[Expected]

    @property
    def tolerance(self) -> Tolerance:
        return self.problem.tolerance(self.case.dtype)

    def with_args(self, args: list[Args]) -> list[RankResult]:
        """What ranks deliver that compute the right function of other arguments."""
        return delivered(self.problem.oracle(self.case, args))

    def blank(self, args: Args) -> Args:
        """The arguments of a rank whose contribution is lost."""
        return self.problem.blank(args) if self.problem.blank else map_args(args, _zero_floats)


def delivered(expected: list[Expected]) -> list[RankResult]:
    """What ranks deliver that meet ``expected``: the oracle rounded once to the dtypes of the outputs."""
    return [_deliver(e, _rounded) for e in expected]


def _deliver(expected: Expected, change: Callable[[Leaf], torch.Tensor]) -> RankResult:
    return RankResult(map_leaves(expected.output, change), map_leaves(dict(expected.mutated), change))


def _rounded(leaf: Leaf) -> torch.Tensor:
    return leaf.value.to(leaf.dtype)


def _zero_floats(x: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(x) if x.is_floating_point() or x.is_complex() else x


# Comparing ------------------------------------------------------------------------------------------------------------


def ratios(expected: Expected, result: RankResult, tolerance: Tolerance) -> dict[str, float]:
    """Error of one rank's outputs by path; infinite where structure, shape, dtype or an exact value differ."""
    found = dict(_walk(expected.output, result.output, tolerance, "output"))
    for name, value in expected.mutated.items():
        found |= dict(_walk(value, result.args.get(name), tolerance, f"arg:{name}"))
    return found


def _walk(expected: Any, value: Any, tolerance: Tolerance, path: str) -> Iterator[tuple[str, float]]:
    if isinstance(expected, Leaf):
        yield path, _leaf_ratio(expected, value, tolerance)
    elif isinstance(expected, dict):
        if not isinstance(value, dict) or list(value) != list(expected):
            yield path, math.inf
            return
        for key, item in expected.items():
            yield from _walk(item, value[key], tolerance, f"{path}.{key}")
    elif isinstance(expected, list | tuple):
        if type(value) is not type(expected) or len(value) != len(expected):
            yield path, math.inf
            return
        for index, item in enumerate(expected):
            yield from _walk(item, value[index], tolerance, f"{path}.{index}")
    elif isinstance(expected, float) and isinstance(value, float):
        error, allowed = abs(value - expected), tolerance.relative * abs(expected)
        yield path, 0.0 if error == 0 else (error / allowed if allowed > 0 else math.inf)
    elif type(value) is not type(expected) or value != expected:
        yield path, math.inf


def _leaf_ratio(leaf: Leaf, value: Any, tolerance: Tolerance) -> float:
    if isinstance(leaf.rule, Free):
        return 0.0
    if not isinstance(value, torch.Tensor) or value.shape != leaf.value.shape or value.dtype != leaf.dtype:
        return math.inf
    return compare(leaf, value, tolerance).ratio


def by_path(trial: Trial, results: list[RankResult]) -> Ratios:
    """Largest error over the ranks for every output."""
    worst: dict[str, float] = {}
    for expected, result in zip(trial.expected, results, strict=True):
        for path, ratio in ratios(expected, result, trial.tolerance).items():
            worst[path] = max(worst.get(path, 0.0), ratio)
    return worst


def verdict(trial: Trial, results: list[RankResult]) -> float:
    """Largest error over ranks and outputs: what the judge's verdict depends on."""
    return max(by_path(trial, results).values(), default=0.0)


# Cheats ---------------------------------------------------------------------------------------------------------------


def cheats(trial: Trial, other: Trial) -> dict[str, float]:
    """Row -> ratio of the cheat that comes nearest to passing; rows that a problem cannot have are missing.

    ``other``: the same case with another seed. Where a cheat can be tried on one output while the others are right,
    every output must refuse it by itself.
    """
    rows: dict[str, float | None] = {
        "zeros": _weakest(trial, lambda leaf, rank: torch.zeros_like(_rounded(leaf))),
        "mean": _weakest(trial, lambda leaf, rank: _mean(leaf)),
        "input_copy": _input_copies(trial),
        "output_chunk": _weakest(trial, lambda leaf, rank: _without_last_chunk(_rounded(leaf))),
        "stale": _stale(trial, other),
        **_lower_precision(trial),
    }
    if trial.case.world_size > 1:
        rows |= {
            "local_only": _local_only(trial),
            "missing_rank": _missing_rank(trial),
            "missing_chunk": _missing_chunk(trial),
        }
    return {name: ratio for name, ratio in rows.items() if ratio is not None}


def _weakest(trial: Trial, change: Callable[[Leaf, int], torch.Tensor | None]) -> float | None:
    """Smallest error over the outputs that ``change`` applies to (it gives None for the others)."""
    worst: dict[str, float] = {}
    for rank, expected in enumerate(trial.expected):
        for path, leaf in leaves(expected):
            value = None if isinstance(leaf.rule, Free) else change(leaf, rank)
            if value is not None and leaf.value.numel() > 0:
                worst[path] = max(worst.get(path, 0.0), _leaf_ratio(leaf, value, trial.tolerance))
    return min(worst.values()) if worst else None


def _mean(leaf: Leaf) -> torch.Tensor | None:
    if leaf.value.numel() < 2 or not leaf.value.is_floating_point():
        return None
    finite = leaf.value[leaf.value.isfinite()]
    return torch.full_like(leaf.value, float(finite.mean()) if len(finite) else 0.0).to(leaf.dtype)


def _without_last_chunk(value: torch.Tensor) -> torch.Tensor | None:
    if value.numel() < 2 * CHUNK or value.layout != torch.strided:
        return None
    flat = value.flatten().clone()
    flat[-(len(flat) // CHUNK) :] = 0
    return flat.reshape(value.shape)


def _input_copies(trial: Trial) -> float | None:
    """A copy, or a repetition, of an input in place of an output that has its dtype and a shape it fits into."""
    weakest: list[float] = []
    for position in range(max(sum(1 for _ in tensors(args)) for args in trial.args)):

        def copied(leaf: Leaf, rank: int, position: int = position) -> torch.Tensor | None:
            own = list(tensors(trial.args[rank]))
            if position >= len(own) or leaf.value.numel() < 2:
                return None
            return _fitted(own[position], leaf)

        ratio = _weakest(trial, copied)
        if ratio is not None:
            weakest.append(ratio)
    return min(weakest) if weakest else None


def _fitted(x: torch.Tensor, leaf: Leaf) -> torch.Tensor | None:
    shape = leaf.value.shape
    if x.dtype != leaf.dtype or x.layout != torch.strided or x.numel() < 2:
        return None
    if x.numel() == leaf.value.numel():
        return x.reshape(shape)
    fits = x.ndim <= len(shape) and tuple(shape[len(shape) - x.ndim :]) == tuple(x.shape)
    return x.expand(shape) if fits else None


def _stale(trial: Trial, other: Trial) -> float | None:
    """The answer to other inputs. Integers may repeat by nature, so they count only where there is no float output."""
    found = by_path(trial, delivered(other.expected))
    of_floats = [ratio for path, ratio in found.items() if path in _float_paths(trial)]
    return min(of_floats) if of_floats else max(found.values(), default=None)


def _lower_precision(trial: Trial) -> dict[str, float | None]:
    """The next narrower format throughout, and as half a cheat for the inputs or for the outputs only.

    Rows without floats to narrow do not apply.
    """
    inputs = trial.problem.oracle(trial.case, [map_args(args, narrowed) for args in trial.args])
    both = verdict(trial, [_deliver(e, _narrow_output) for e in inputs])
    outputs = verdict(trial, [_deliver(e, _narrow_output) for e in trial.expected])
    floats_in = any(x.is_floating_point() or x.is_complex() for args in trial.args for x in tensors(args))
    floats_out = bool(_float_paths(trial))
    return {
        "lower_precision": both if floats_in or floats_out else None,
        "narrow_inputs": verdict(trial, delivered(inputs)) if floats_in else None,
        "narrow_outputs": outputs if floats_out else None,
    }


def _float_paths(trial: Trial) -> set[str]:
    """Outputs that are floats or complex on some rank and not left unspecified."""
    return {
        path
        for expected in trial.expected
        for path, leaf in leaves(expected)
        if not isinstance(leaf.rule, Free) and (leaf.dtype.is_floating_point or leaf.dtype.is_complex)
    }


def _narrow_output(leaf: Leaf) -> torch.Tensor:
    return narrowed(_rounded(leaf))


def narrowed(x: torch.Tensor) -> torch.Tensor:
    """Values as the next narrower format holds them, in their own dtype: fp64 -> fp32 -> TF32, bf16 and fp16 -> fp8."""
    if x.layout != torch.strided or x.numel() == 0:
        return x
    if x.is_complex():
        return torch.view_as_complex(narrowed(torch.view_as_real(x.resolve_conj())))
    if x.dtype == torch.float64:
        return x.to(torch.float32).to(x.dtype)
    if x.dtype == torch.float32:
        bits = x.contiguous().view(torch.int32)
        return torch.where(x.isfinite(), ((bits + 0x1000) & ~0x1FFF).view(torch.float32), x)
    if x.dtype in (torch.bfloat16, torch.float16):
        largest = torch.where(x.isfinite(), x.abs(), 0).max().double()
        step = 448.0 / largest if largest > 0 else torch.tensor(1.0)  # 448: largest e4m3 number
        eight = (x.double() * step).to(torch.float8_e4m3fn).double() / step
        return torch.where(x.isfinite(), eight.to(x.dtype), x)
    return x


def _local_only(trial: Trial) -> float | None:
    """Every rank computes as if all others had nothing; every output must show it.

    Exempt are ``local_outputs`` and, where blanking leaves integers as they are, outputs that are not floats.
    """
    worst: dict[str, float] = {}
    for rank, own in enumerate(trial.args):
        args = [own if r == rank else trial.blank(a) for r, a in enumerate(trial.args)]
        result = trial.with_args(args)[rank]
        for path, ratio in ratios(trial.expected[rank], result, trial.tolerance).items():
            worst[path] = max(worst.get(path, 0.0), ratio)
    exempt = set(trial.problem.local_outputs)
    if trial.problem.blank is None:
        exempt |= worst.keys() - _float_paths(trial)
    counted = [ratio for path, ratio in worst.items() if path not in exempt]
    return min(counted) if counted else None


def _missing_rank(trial: Trial) -> float | None:
    """One rank's contribution is lost; every rank that reads it must notice, in at least one of its outputs."""
    smallest: list[float] = []
    W = trial.case.world_size
    for lost in range(W):
        results = trial.with_args([trial.blank(a) if r == lost else a for r, a in enumerate(trial.args)])
        for rank in range(W):
            if trial.problem.reads(rank, lost, W) and not _unspecified(trial.expected[rank]):
                found = ratios(trial.expected[rank], results[rank], trial.tolerance)
                smallest.append(max(found.values(), default=math.inf))
    return min(smallest) if smallest else None


def _unspecified(expected: Expected) -> bool:
    return all(isinstance(leaf.rule, Free) for _, leaf in leaves(expected))


def _missing_chunk(trial: Trial) -> float | None:
    """The last eighth of one rank's largest float input is lost; tried for every rank that some rank reads."""
    found: list[float] = []
    W = trial.case.world_size
    for lost, own in enumerate(trial.args):
        if not any(trial.problem.reads(rank, lost, W) for rank in range(W)):
            continue
        sizes = [x.numel() if x.is_floating_point() and x.layout == torch.strided else 0 for x in tensors(own)]
        if max(sizes, default=0) < 2 * CHUNK:
            continue
        order = iter(range(len(sizes)))
        largest = sizes.index(max(sizes))
        changed = map_args(own, lambda x, order=order, at=largest: _cut(x) if next(order) == at else x)  # type: ignore[misc]
        found.append(verdict(trial, trial.with_args([changed if r == lost else a for r, a in enumerate(trial.args)])))
    return min(found) if found else None


def _cut(x: torch.Tensor) -> torch.Tensor:
    cut = _without_last_chunk(x)
    return x if cut is None else cut


# Honest variants ------------------------------------------------------------------------------------------------------

_WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}


def widened(args: list[Args], dtype: torch.dtype) -> list[Args]:
    """The arguments with tensors of the run dtype in the next wider one: the values are the same."""
    return [map_args(own, lambda x: x.to(_WIDER[dtype]) if x.dtype == dtype else x) for own in args]


def narrowed_to_expected(expected: list[Expected], results: list[RankResult]) -> list[RankResult]:
    """Results computed in a wider dtype, their floats rounded to the dtypes in which the outputs must come."""
    return [
        r
        if r.error
        else RankResult(_cast(e.output, r.output), {n: _cast(v, r.args.get(n)) for n, v in e.mutated.items()})
        for e, r in zip(expected, results, strict=True)
    ]


def _cast(expected: Any, value: Any) -> Any:
    if isinstance(expected, Leaf):
        if not isinstance(value, torch.Tensor):
            return value
        floats = value.is_floating_point() and expected.dtype.is_floating_point
        return value.to(expected.dtype) if floats or (value.is_complex() and expected.dtype.is_complex) else value
    if isinstance(expected, dict) and isinstance(value, dict):
        return {key: _cast(expected.get(key), item) for key, item in value.items()}
    if isinstance(expected, list | tuple) and isinstance(value, list | tuple) and len(expected) == len(value):
        return type(value)(_cast(e, v) for e, v in zip(expected, value, strict=True))
    return value


def rotated(items: list[T]) -> list[T]:
    """The ranks renumbered: rank r gets what rank r + 1 had."""
    return items[1:] + items[:1]


def fresh(args: list[Args]) -> list[Args]:
    """Copies of the arguments that share no memory with them."""
    return [{name: map_tensors(value, torch.clone) for name, value in own.items()} for own in args]
