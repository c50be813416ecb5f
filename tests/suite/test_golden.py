"""The golden numbers' format: rules, expressions, and that a wrong number is noticed."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from problems.suite import golden, registry
from problems.suite.base import Group
from problems.suite.expressions import evaluate
from problems.suite.ranks import RankResult

INPUTS: dict[str, Any] = {
    "lengths": {"each": "(7*i + rank) % 5 if i > 0 else 9", "shape": [3]},
    "x": {"sin": {"shape": ["1 + rank", 2], "k": 1, "scale": 2.0, "offset": 0.5, "quad": 0.1, "dtype": "float64"}},
    "values": {"each": "i", "shape": "[sum(lengths)]", "dtype": "bfloat16"},
    "splits": {"list": {"value": "j * W + rank"}, "count": "W"},
    "mask": {"each": "i % 2 == 0 and i > 1", "shape": [4], "dtype": "bool"},
    "layer": {"linear": {"weight": {"sin": {"shape": [3, 2], "k": 0}}, "bias": None}},
    "group": {"group": [[0], [1]]},
    "steps": {"by_rank": [5, {"tuple": [1, "text"]}]},
    "theta": {"tensor": [["cos(0.1 * rank)", 0.0]]},
}


def _write(tmp_path: Path, expected: list[dict[str, Any]], inputs: Any = INPUTS) -> None:
    checks = [{"name": "main", "world_size": 2, "inputs": inputs, "expected": expected}]
    (tmp_path / "1.json").write_text(json.dumps({"id": 1, "checks": checks}))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(golden, "GOLDEN", tmp_path)
    return tmp_path


def test_inputs_follow_their_rules(folder: Path) -> None:
    _write(folder, [])
    args = golden.checks(registry.get(1))[0].args[1]
    assert args["lengths"].tolist() == [9, 3, 0]
    assert args["x"].shape == (2, 2)
    assert args["x"].dtype == torch.float64
    i = 3
    assert math.isclose(float(args["x"][1, 1]), 0.5 + 2 * math.sin(0.37 * i + 1.3 + 0.11 + 0.1 * i * i))
    assert args["values"].shape == (12,)
    assert args["values"].dtype == torch.bfloat16
    assert args["splits"] == [1, 3]
    assert args["mask"].tolist() == [False, False, True, False]
    assert args["layer"].bias is None
    assert not args["layer"].weight.requires_grad
    assert args["group"] == Group(((0,), (1,)))
    assert args["steps"] == (1, "text")
    assert math.isclose(float(args["theta"][0, 0]), math.cos(0.1), rel_tol=1e-7)


NUMBERS = {
    "rank": 1,
    "output": "a.0",
    "shape": [3],
    "sum": -1.0,
    "abs_sum": 5.0,
    "wsum": 2.0,
    "first8": [-3.0, 1.0, 1.0],
}
RESULT = RankResult({"a": [torch.tensor([-3.0, 1.0, 1.0])]})


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"rank": "all"}, ""),
        ({"sum": -1.001}, "sum -1 instead of -1.001"),
        ({"wsum": 2.1}, "wsum 2 instead of 2.1"),
        ({"first8": [-3.0, 1.0, 1.001]}, "first8[2] 1 instead of 1.001"),
        ({"shape": [3, 1]}, "shape [3] instead of [3, 1]"),
        ({"dtype": "bfloat16"}, "dtype torch.float32 instead of bfloat16"),
        ({"neg_inf": 1}, "0 entries are minus infinity instead of 1"),
        ({"output": "b"}, "no such output (KeyError('b'))"),
    ],
)
def test_every_wrong_number_is_noticed(folder: Path, change: dict[str, Any], said: str) -> None:
    _write(folder, [NUMBERS | change])
    faults = golden.faults(golden.checks(registry.get(1))[0], [RESULT, RESULT])
    assert len(faults) == (1 if said else 0)
    assert said in "".join(faults)


def test_integers_have_no_tolerance(folder: Path) -> None:
    _write(folder, [{"rank": 0, "output": "", "sum": 1_000_001}])
    check = golden.checks(registry.get(1))[0]
    assert golden.faults(check, [RankResult([1_000_000]), RankResult([0])])
    assert not golden.faults(check, [RankResult([1_000_001]), RankResult([0])])


def test_malformed_files_are_refused(folder: Path) -> None:
    _write(folder, [], inputs="code")
    with pytest.raises(ValueError, match="the problem has no golden_inputs"):
        golden.checks(registry.get(1))
    _write(folder, [], inputs={"x": {"cosine": {}}})
    with pytest.raises(ValueError, match="unknown kind of golden value: 'cosine'"):
        golden.checks(registry.get(1))


@pytest.mark.parametrize(
    "text", ["__import__('os')", "x.shape", "[y for y in x]", "lambda: 1", "open('f')", "1 < 2 < 3"]
)
def test_expressions_know_arithmetic_only(text: str) -> None:
    with pytest.raises(ValueError, match="is not known here"):
        evaluate(text, {"x": [1, 2]})
