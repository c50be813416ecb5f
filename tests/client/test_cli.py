"""``./pkb`` as people call it: from any folder, with a bare interpreter, with typing errors."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from client.suite import entries

ROOT = Path(__file__).resolve().parents[2]


def pkb(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """-S: no packages at all, since the command line promises to need none."""
    command = [sys.executable, "-S", str(ROOT / "pkb"), *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=60)


def test_a_prompt_goes_to_standard_output(tmp_path: Path) -> None:
    done = pkb(tmp_path, "prompt", "13", "--backend", "cuda", "--precision", "bf16", "--hardware", "h100x8")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("# GEMM, then all-reduce of the product: a CUDA implementation for 8 × H100 SXM")
    assert done.stdout == pkb(tmp_path, "prompt", "gemm-allreduce").stdout


def test_the_suite_comes_as_json_lines(tmp_path: Path) -> None:
    done = pkb(tmp_path, "prompts", "--backend", "triton", "--precision", "fp32", "--hardware", "h200x4", "--jsonl")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert set(lines[0]) == {"id", "slug", "backend", "precision", "hardware", "digest", "prompt"}
    assert {(line["backend"], line["precision"], line["hardware"]) for line in lines} == {("triton", "fp32", "h200x4")}
    missing = {entry["id"] for entry in entries()} - {line["id"] for line in lines}
    assert len(missing) == done.stderr.count("Problem ")
    assert {line["id"]: line["digest"] for line in lines}.items() <= {e["id"]: e["digest"] for e in entries()}.items()


def test_problems_are_listed(tmp_path: Path) -> None:
    listed = pkb(tmp_path, "problems").stdout.splitlines()
    assert [line.split()[:2] for line in listed] == [[str(e["id"]), e["slug"]] for e in entries()]
    chosen = json.loads(pkb(tmp_path, "problems", "--type", "expert", "--json").stdout)
    assert {e["slug"] for e in chosen} == {e["slug"] for e in entries() if "expert" in (e["type"], *e["also"])}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("prompt", "gem_allreduce"), "There is no problem called 'gem_allreduce'. Did you mean 13 gemm_allreduce"),
        (("prompt", "9999"), "There is no problem 9999. Did you mean "),
        (("prompt", "%"), "There is no problem called '%'. All of them: ./pkb problems"),
        (("prompt", "13", "--backend", "tritton"), "Did you mean triton?"),
        (("prompt", "13", "--hardware", "h100x9"), "there is no 'h100x9'; there are h100x4, h100x8"),
        (("prompt", "13", "--hardware", "cpu-gloo"), "needs GPUs, which the target cpu-gloo does not have"),
        (("problems", "--type", "abacus"), "There is no type 'abacus'; there are collective"),
        (("promt",), "Did you mean prompt?"),
        ((), "the following arguments are required: COMMAND"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else "",
)
def test_mistakes_are_answered_with_what_would_be_right(
    tmp_path: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = pkb(tmp_path, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_is_no_failure(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "pkb"), "prompts", "--jsonl"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path) as running:
        assert running.stdout is not None and running.stderr is not None
        running.stdout.readline()
        running.stdout.close()
        assert "Traceback" not in running.stderr.read()
        running.wait(60)
    assert running.returncode == 0
