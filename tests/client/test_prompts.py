"""Prompts: there is one for every problem and backend, it says all that it must, and always the same."""

from __future__ import annotations

import ast
import itertools
import json
import re
from pathlib import Path

import pytest

from client.suite import Entry, entries
from evaluator.contract import Backend, Limits, Precision
from problems import hardware, prompts
from problems.prompts import assembly

PROBLEMS = entries()
TARGETS = hardware.load()
EXAMPLES = sorted((Path(assembly.__file__).parent / "examples").glob("[a-z]*_*.py"))
LARGEST = 30_000
MACHINE = re.compile(r"/(home|root|work|tmp|usr|opt|srv)/")


@pytest.mark.parametrize("entry", PROBLEMS, ids=lambda entry: entry["slug"])
def test_every_problem_has_a_prompt_for_every_backend(entry: Entry) -> None:
    for backend, name in itertools.product(prompts.BACKENDS, ("h100x8", "b200x8", "h200x4")):
        target = TARGETS[name]
        if entry["world_sizes"][str(target.world_size)]:
            continue
        text = prompts.build(entry, backend, "bf16", target)
        for part in (entry["signature"], entry["reference"].strip(), entry["statement"], *entry["hazards"]):
            assert part in text
        for part in (f"`{entry['id']}_{entry['slug']}_{backend}.py`", "450 GB/s" if name[0] == "h" else "900 GB/s"):
            assert part in text
        assert len(text.encode()) < LARGEST
        assert not MACHINE.search(text)
        assert text == prompts.build(entry, backend, "bf16", target)


def test_backends_and_precisions_are_those_of_the_contract() -> None:
    assert list(prompts.BACKENDS) == [backend.value for backend in Backend]
    assert list(prompts.PRECISIONS) == [precision.value for precision in Precision]


def test_the_limits_in_the_rules_are_those_of_the_judge() -> None:
    limits = Limits()
    text = prompts.build(PROBLEMS[0], "cuda", "bf16", TARGETS["h100x8"])
    stated = (
        f"{limits.compile:.0f} s to compile (done once; the other ranks load the result), {limits.ready:.0f} s until"
    )
    assert stated in text
    assert f"{limits.call:.0f} s a call" in text


def test_the_ways_of_moving_data_are_those_of_the_target() -> None:
    full, emulated, cpu = (
        prompts.build(PROBLEMS[0], "pytorch", TARGETS[name].precision, TARGETS[name])
        for name in ("h100x8", "gpu-emulated", "cpu-gloo")
    )
    assert "multimem.ld_reduce" in full
    assert "multimem.ld_reduce" not in emulated
    assert "no in-switch multicast here" in emulated
    assert "## Symmetric memory" in full
    assert "## Symmetric memory" not in cpu
    assert "TFLOP/s" not in cpu


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_examples_are_submissions(path: Path) -> None:
    """Each parses and defines solution; every backend has one of overlap and one of fusion."""
    tree = ast.parse(path.read_text())
    assert "solution" in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    imported = {node.module for node in tree.body if isinstance(node, ast.ImportFrom)}
    assert ("utils.cuda_helpers" in imported) == (path.stem.rpartition("_")[2] in ("cuda", "parallelkittens"))


def test_every_backend_has_both_examples() -> None:
    wanted = {f"{name}_{backend}" for name in ("distances", "centre") for backend in prompts.BACKENDS}
    assert {path.stem for path in EXAMPLES} == wanted


def test_a_choice_that_does_not_fit_says_why() -> None:
    gemm = next(entry for entry in PROBLEMS if entry["id"] == 13)
    not_for_8 = {**gemm, "world_sizes": {"8": "M must be a multiple of 3·W."}}
    for entry, choice, sentence in (
        (gemm, ("abacus", "bf16", "h100x8"), "There is no backend 'abacus'; there are cuda, triton"),
        (gemm, ("cuda", "fp32", "cpu-gloo"), "needs GPUs"),
        (gemm, ("pytorch", "bf16", "cpu-gloo"), "runs fp32, not bf16"),
        (not_for_8, ("cuda", "bf16", "h100x8"), "not defined for the 8 ranks of h100x8: M must be a multiple of 3·W."),
    ):
        backend, precision, name = choice
        with pytest.raises(prompts.Refusal, match=re.escape(sentence)):
            prompts.build(entry, backend, precision, TARGETS[name])


@pytest.mark.parametrize("precision", prompts.PRECISIONS)
def test_a_run_of_any_precision_covers_the_whole_suite(precision: str) -> None:
    """A problem whose inputs have a dtype of their own is asked for in it, with its tolerance, cost and bound."""
    target = TARGETS["h100x4"]
    lines = [json.loads(prompts.as_json_line(entry, "cuda", precision, target)) for entry in PROBLEMS]
    assert [line["id"] for line in lines] == list(range(1, 88))
    own = {line["id"]: line["prompt"] for line in lines if "whatever the precision of the run" in line["prompt"]}
    assert set(own) == (set() if precision == "fp32" else {26, 61, 64, 66})
    for number, prompt in own.items():
        entry = PROBLEMS[number - 1]
        assert "so its run dtype is fp32 (`torch.float32`)" in prompt
        assert f"{entry['tolerances']['fp32']['units']:.3g} × rms of the expected output" in prompt
        assert "Least work of the most loaded rank for one call" in prompt
        assert "At peak rates that takes" in prompt
