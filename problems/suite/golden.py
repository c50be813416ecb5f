"""Golden numbers: what each problem must give for inputs that follow a closed rule, so that no generator is needed.

They lie in ``golden/<id>.json`` and pin the semantics: references, oracles and later rewrites of either are held
against them. The format:

    {"id": 73, "checks": [CHECK, ...]}

CHECK is an object:
    name         "main" or the name of the variant
    world_size   W
    dtype        run dtype, "float32" unless given
    sizes        {"M": 8, ...}: sizes of the case that the oracle sees; only where the oracle reads sizes
    inputs       {argument: VALUE, ...} in the order of the signature, or "code": the problem's hook
                 ``golden_inputs(name, world_size) -> [arguments of rank 0, of rank 1, ...]``
    tolerance    TOLERANCE, see below
    expected     [NUMBERS, ...]
    oracle       false where the oracle does not apply (say why in "note"); true unless given

VALUE is one of
    a number, a text, true, false, null                      itself
    [VALUE, ...]                                             a list
    {"sin": {"shape": S, "k": X, ...}}                       tensor offset + scale * sin(0.37*i + 1.3*rank + 0.11*k +
                                                             quad*i*i), i = row-major flat index, in float64, then
                                                             cast; "scale" 1, "offset" 0, "quad" 0, "rank" the own
                                                             rank, "dtype" the run dtype unless given
    {"each": TEXT, "shape": S, "dtype": "int64"}             tensor whose element i is the expression over i
    {"tensor": [[...]], "dtype": "float32"}                  tensor written out; entries may be expressions
    {"value": TEXT}                                          Python number, the expression
    {"list": VALUE, "count": X}                              list of X values; expressions in it may use j, the position
    {"tuple": [VALUE, ...]}                                  tuple
    {"linear": {"weight": VALUE, "bias": VALUE}}             torch.nn.Linear with these parameters (bias null: without)
    {"group": [[0, 1], [2, 3]]}                              process group: the part that holds the rank
    {"by_rank": [VALUE, ...]}                                one for each rank

A shape S is a list whose entries are numbers or expressions, or an expression that gives a list; every X may be an
expression. Expressions are text in Python's notation over rank, W, i, j and arguments that came before by their name
(``[sum(lengths)]``): + - * / // % **, comparisons, ``a if c else b``, and/or/not, indexing, and abs, sin, cos, sqrt,
exp, min, max, sum, len, int, float. Over tensors (i) they work element by element.

TOLERANCE: {"sums": [relative to abs_sum, absolute], "first8": [relative to the element, relative to the largest
magnitude of the output, absolute]}; ``wsum`` gets 7 times that of the sums, for its weights go up to 7. Integers and
booleans must be met exactly.

NUMBERS: {"rank": 0 or "all", "output": PATH, "shape": [...], "dtype": "int64", "sum": x, "abs_sum": x, "wsum": x,
"first8": [...], "neg_inf": n}; every part may be left out. wsum = sum of x[i] * ((i mod 7) + 1); sums run over finite
entries, ``neg_inf`` counts entries that are minus infinity. Complex outputs are read as (re, im) pairs, 8-bit floats
and booleans as numbers. PATH: "" the result itself, "0" its first element, "weights.2" element 2 under the key
"weights", "arg:grad_tensors.0" an argument after the call; a list of numbers counts as a tensor.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from problems.suite.base import Args, Case, Expected, Group, Leaf, Problem
from problems.suite.expressions import evaluate
from problems.suite.ranks import RankResult, Ranks

GOLDEN = Path(__file__).parent / "golden"
DEFAULT_TOLERANCE = {"sums": [1e-5, 1e-5], "first8": [1e-4, 0.0, 1e-5]}


@dataclass(frozen=True)
class Check:
    """One entry of a golden file, with the arguments of all ranks built."""

    name: str
    case: Case
    args: list[Args]
    tolerance: Mapping[str, list[float]]
    expected: list[dict[str, Any]]
    oracle: bool


def checks(problem: Problem) -> list[Check]:
    """The golden checks of a problem; empty if it has no file. Raises ValueError where the file is malformed."""
    path = GOLDEN / f"{problem.id}.json"
    if not path.exists():
        return []
    content = json.loads(path.read_text(encoding="utf-8"))
    if content.get("id") != problem.id:
        raise ValueError(f"{path.name} says that it belongs to problem {content.get('id')}")
    return [_check(problem, entry) for entry in content["checks"]]


def _check(problem: Problem, entry: dict[str, Any]) -> Check:
    known = {"name", "world_size", "dtype", "sizes", "inputs", "tolerance", "expected", "oracle", "note"}
    if set(entry) - known:
        raise ValueError(f"golden/{problem.id}.json, {entry.get('name')}: unknown keys {sorted(set(entry) - known)}")
    world_size, dtype = entry["world_size"], getattr(torch, entry.get("dtype", "float32"))
    if entry["inputs"] == "code":
        if problem.golden_inputs is None:
            raise ValueError(f"golden/{problem.id}.json, {entry['name']}: the problem has no golden_inputs")
        args = problem.golden_inputs(entry["name"], world_size)
    else:
        args = [_arguments(entry["inputs"], rank, world_size, dtype) for rank in range(world_size)]
    case = Case("golden", world_size, dtype, entry.get("sizes", {}), draw="golden")
    tolerance = entry.get("tolerance", DEFAULT_TOLERANCE)
    return Check(entry["name"], case, args, tolerance, entry["expected"], entry.get("oracle", True))


def sin_rule(
    shape: list[int],
    *,
    rank: int,
    k: float,
    scale: float = 1.0,
    offset: float = 0.0,
    quad: float = 0.0,
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """offset + scale * sin(0.37 i + 1.3 rank + 0.11 k + quad i²) over the flat index i, in float64, then cast."""
    i = torch.arange(math.prod(shape), dtype=torch.float64)
    values = offset + scale * torch.sin(0.37 * i + 1.3 * rank + 0.11 * k + quad * i * i)
    return values.reshape(shape).to(dtype)


def _arguments(inputs: Mapping[str, Any], rank: int, world_size: int, dtype: torch.dtype) -> Args:
    args: Args = {}
    for name, value in inputs.items():
        args[name] = _build(value, {**args, "rank": rank, "W": world_size, "_dtype": dtype})
    return args


def _build(value: Any, names: dict[str, Any]) -> Any:
    """A VALUE of the format with the names that its expressions may use."""
    if isinstance(value, list):
        return [_build(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    kind = next(iter(value))
    body = value[kind]
    match kind:
        case "sin":
            return _sin(body, names)
        case "each":
            shape = _shape(value["shape"], names)
            i = torch.arange(math.prod(shape))
            result = torch.as_tensor(evaluate(body, {**names, "i": i}))
            return result.expand(i.shape).to(_dtype(value.get("dtype", "int64"), names)).reshape(shape)
        case "tensor":
            return torch.tensor(_numbers(body, names), dtype=_dtype(value.get("dtype", "float32"), names))
        case "value":
            return evaluate(body, names)
        case "list":
            return [_build(body, {**names, "j": j}) for j in range(int(evaluate(value["count"], names)))]
        case "tuple":
            return tuple(_build(item, names) for item in body)
        case "linear":
            return linear(_build(body["weight"], names), _build(body.get("bias"), names))
        case "group":
            return Group(tuple(tuple(members) for members in body))
        case "by_rank":
            return _build(body[names["rank"]], names)
    raise ValueError(f"unknown kind of golden value: {kind!r}")


def _sin(body: Mapping[str, Any], names: dict[str, Any]) -> torch.Tensor:
    figure = {key: float(evaluate(body[key], names)) for key in ("scale", "offset", "quad") if key in body}
    rank = int(evaluate(body.get("rank", "rank"), names))
    k = float(evaluate(body["k"], names))
    return sin_rule(_shape(body["shape"], names), rank=rank, k=k, dtype=_dtype(body.get("dtype"), names), **figure)


def linear(weight: torch.Tensor, bias: torch.Tensor | None) -> torch.nn.Linear:
    """A linear layer with the given parameters, weight (out, in), that records no gradient."""
    layer = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    layer.weight = torch.nn.Parameter(weight, requires_grad=False)
    if bias is not None:
        layer.bias = torch.nn.Parameter(bias, requires_grad=False)
    return layer


def _dtype(name: str | None, names: Mapping[str, Any]) -> torch.dtype:
    dtype: torch.dtype = names["_dtype"] if name is None else getattr(torch, name)
    return dtype


def _shape(shape: Any, names: Mapping[str, Any]) -> list[int]:
    if isinstance(shape, str):
        return [int(size) for size in evaluate(shape, names)]
    return [int(evaluate(size, names)) for size in shape]


def _numbers(value: Any, names: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_numbers(item, names) for item in value]
    return evaluate(value, names)


def faults(check: Check, results: list[RankResult]) -> list[str]:
    """Sentences on where the results of the ranks differ from the golden numbers; empty if nowhere."""
    found = [f"rank {r}: {result.error.strip()}" for r, result in enumerate(results) if result.error]
    if found:
        return [f"golden {check.name}: {sentence}" for sentence in found]
    for numbers in check.expected:
        ranks = range(len(results)) if numbers["rank"] == "all" else [numbers["rank"]]
        for rank in ranks:
            where = f"golden {check.name}, rank {rank}, output {numbers['output']!r}"
            try:
                value = _select(numbers["output"], results[rank])
            except (KeyError, IndexError, TypeError) as error:
                found.append(f"{where}: no such output ({error!r})")
                continue
            found += [f"{where}: {sentence}" for sentence in _compare(numbers, value, check.tolerance)]
    return found


def run(problem: Problem, ranks: Mapping[int, Ranks]) -> list[str]:
    """Holds reference and oracle against the golden numbers, for the world sizes of ``ranks``; returns the faults."""
    found: list[str] = []
    for check in checks(problem):
        group = ranks.get(check.case.world_size)
        if group is None:
            continue
        found += faults(check, group.call(problem.id, check.args))
        if check.oracle:
            expected = problem.oracle(check.case, check.args)
            found += [f"oracle, {sentence}" for sentence in faults(check, [_as_result(e) for e in expected])]
    return found


def _as_result(expected: Expected) -> RankResult:
    """What a rank that delivers exactly the oracle's values would have given."""
    return RankResult(output=_values(expected.output), args=_values(dict(expected.mutated)))


def _values(tree: Any) -> Any:
    if isinstance(tree, Leaf):
        return tree.value
    if isinstance(tree, dict):
        return {key: _values(value) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(map(_values, tree))
    return tree


def _select(path: str, result: RankResult) -> torch.Tensor:
    value: Any = result.output
    if path.startswith("arg:"):
        value, path = result.args, path.removeprefix("arg:")
    for step in filter(None, path.split(".")):
        value = value[step] if isinstance(value, dict) else value[int(step)]
    return torch.as_tensor(value).detach()


def _compare(numbers: Mapping[str, Any], value: torch.Tensor, tolerance: Mapping[str, list[float]]) -> list[str]:
    found = []
    shape, dtype = numbers.get("shape"), numbers.get("dtype")
    if shape is not None and list(value.shape) != shape:
        return [f"shape {list(value.shape)} instead of {shape}"]
    if dtype is not None and value.dtype not in (getattr(torch, dtype), torch.float64):
        found.append(f"dtype {value.dtype} instead of {dtype}")
    exact = not (value.is_floating_point() or value.is_complex())
    x = (torch.view_as_real(value) if value.is_complex() else value).to(torch.float64).flatten()
    finite = torch.where(x.isfinite(), x, torch.zeros_like(x))
    weights = torch.arange(len(x)) % 7 + 1
    relative, absolute = (0.0, 0.0) if exact else tolerance["sums"]
    allowed = relative * float(finite.abs().sum()) + absolute
    measured = {"sum": finite.sum(), "abs_sum": finite.abs().sum(), "wsum": (finite * weights).sum()}
    for name, got in measured.items():
        limit = allowed * (7 if name == "wsum" else 1)
        if name in numbers and not abs(float(got) - numbers[name]) <= limit + 1e-7 * abs(numbers[name]):
            found.append(f"{name} {float(got):.8g} instead of {numbers[name]:.8g} (allowed {limit:.2g})")
    if "neg_inf" in numbers and int((x == -math.inf).sum()) != numbers["neg_inf"]:
        found.append(f"{int((x == -math.inf).sum())} entries are minus infinity instead of {numbers['neg_inf']}")
    if "first8" in numbers:
        found += _compare_first(numbers["first8"], x, [0.0, 0.0, 0.0] if exact else tolerance["first8"])
    return found


def _compare_first(wanted: list[Any], x: torch.Tensor, tolerance: list[float]) -> list[str]:
    # JSON has no infinities: they are written as text, "-inf".
    golden = torch.tensor([float(v) for v in wanted], dtype=torch.float64)
    got = x[: len(golden)]
    if len(got) != len(golden):
        return [f"only {len(got)} elements, {len(golden)} wanted"]
    finite = x[x.isfinite()]
    largest = float(finite.abs().max()) if len(finite) else 0.0
    relative, of_largest, absolute = tolerance
    close = (got - golden).abs() <= relative * golden.abs() + of_largest * largest + absolute + 1e-7 * golden.abs()
    bad = (~(close | (got == golden))).nonzero().flatten().tolist()
    if not bad:
        return []
    return [
        f"first8[{bad[0]}] {float(got[bad[0]]):.8g} instead of {float(golden[bad[0]]):.8g} ({len(bad)} elements off)"
    ]
