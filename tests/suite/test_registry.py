"""Finding problems, freezing them by digest, the catalogue without torch and the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from problems.suite import manifest, registry
from problems.suite.__main__ import main

MODULE = """
PROBLEM = Problem(id=901, slug="one", title="One", type="tensor", also=("data",), aliases=("uno",), difficulty=1)
"""


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A suite of its own: the real shared modules and one problem."""
    for name in ("base.py", "compare.py", "costs.py"):
        shutil.copy(registry.SUITE / name, tmp_path / name)
    (tmp_path / "tensor").mkdir()
    (tmp_path / "tensor" / "one.py").write_text("from problems.suite.costs import element_size\n" + MODULE)
    monkeypatch.setattr(registry, "SUITE", tmp_path)
    monkeypatch.setattr(registry, "CALIBRATION", tmp_path / "calibration.json")
    _forget()
    yield tmp_path
    _forget()


def _forget() -> None:
    registry.entries.cache_clear()
    registry.imported.cache_clear()


def test_problems_are_found_by_id_slug_and_alias(suite: Path) -> None:
    assert registry.find(901) == registry.find("901") == registry.find("one") == registry.find("uno")
    assert registry.find("uno").module == "problems.suite.tensor.one"
    with pytest.raises(KeyError, match=r"no problem 'two' in suite .*ids: 901"):
        registry.find("two")


def test_two_problems_with_one_name_are_refused(suite: Path) -> None:
    (suite / "tensor" / "uno.py").write_text(MODULE.replace("901", "902").replace('"one"', '"uno"').replace("uno,", ""))
    with pytest.raises(ValueError, match="both answer to 'uno'"):
        registry.entries()


def test_problem_in_the_wrong_folder_is_refused(suite: Path) -> None:
    (suite / "tensor" / "one.py").write_text(MODULE.replace('type="tensor"', 'type="graph"'))
    with pytest.raises(ValueError, match=r"belongs into graph/one\.py"):
        registry.entries()


def test_computed_metadata_is_refused(suite: Path) -> None:
    (suite / "tensor" / "one.py").write_text(MODULE.replace("id=901", "id=900 + ONE"))
    with pytest.raises(ValueError, match="must be written as literals"):
        registry.entries()


@pytest.mark.parametrize("changed", ["tensor/one.py", "costs.py", "base.py", "compare.py"])
def test_changing_any_part_changes_the_digest(suite: Path, changed: str) -> None:
    before = registry.digest(registry.find(901))
    path = suite / changed
    path.write_text(path.read_text() + "\nMORE = 1\n")
    _forget()
    assert registry.digest(registry.find(901)) != before


def test_new_calibration_changes_the_digest_and_line_endings_do_not(suite: Path) -> None:
    before = registry.digest(registry.find(901))
    path = suite / "tensor" / "one.py"
    path.write_bytes(path.read_bytes().replace(b"\n", b"  \r\n"))
    assert registry.digest(registry.find(901)) == before
    (suite / "calibration.json").write_text(json.dumps({"suite": "1.0", "problems": {"901": {"fp32": {}}}}))
    assert registry.digest(registry.find(901)) != before


def test_listing_needs_neither_torch_nor_the_modules() -> None:
    code = (
        "import sys; from problems.suite.__main__ import main; main(['list', '--json']);"
        "sys.exit(any(n == 'torch' or n.startswith('problems.suite.tensor.') for n in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    listed = json.loads(done.stdout)
    thirteen = next(problem for problem in listed if problem["id"] == 13)
    assert thirteen.keys() >= {"id", "slug", "type", "also", "difficulty", "title"}
    assert (thirteen["slug"], thirteen["type"], thirteen["also"]) == ("gemm_allreduce", "tensor", ["collective"])


def test_manifest_is_current() -> None:
    assert manifest.stale() == []


def test_manifest_is_plain_json_of_moderate_size() -> None:
    text = manifest.MANIFEST.read_text(encoding="utf-8")
    assert len(text) < 1_500_000

    def refuse(constant: str) -> float:
        raise ValueError(f"{constant} is no JSON")

    problems = json.loads(text, parse_constant=refuse)["problems"]
    assert len({problem["id"] for problem in problems}) == len(problems) > 0
    assert all(problem["reference"].count("def solution(") == 1 for problem in problems)


def test_stale_manifest_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problems = [{"id": entry.id, "digest": registry.digest(entry)} for entry in registry.entries()]
    current = {"suite": registry.SUITE_VERSION, "generator": manifest.manifest_of([])["generator"]}
    path = tmp_path / "manifest.json"
    monkeypatch.setattr(manifest, "MANIFEST", path)
    path.write_text(json.dumps({**current, "problems": problems}))
    assert manifest.stale() == []
    changed = [{"id": 1, "digest": "0" * 64}, *problems[1:-1]]
    path.write_text(json.dumps({**current, "generator": "other", "problems": changed}))
    again = "run: python -m problems.suite manifest --write"
    assert manifest.stale() == [
        f"manifest.json is of another version of the suite or of its generator; {again}",
        f"problem 1 has changed; {again}",
        f"problem {problems[-1]['id']} is only in the sources; {again}",
    ]


def test_description_of_a_problem_is_the_same_every_time() -> None:
    problem = registry.get(27)
    described = manifest.describe(problem)
    assert described == manifest.describe(problem)
    by_rank = next(i for i in described["inputs"] if i["name"] == "input_split_sizes")["value_by_rank"]
    assert [sum(splits) for splits in by_rank] == [described["example"]["sizes"]["M"]] * 4
    cost = next(c for c in described["costs"] if (c["shape"], c["world_size"], c["dtype"]) == ("gpu", 8, "bf16"))
    assert 0 < cost["sent"] < 1024 * 1024 * 2


def test_commands_answer_and_refuse(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reference", "allreduce"]) == 0
    assert "def solution(tensor: torch.Tensor) -> torch.Tensor:" in capsys.readouterr().out
    assert main(["show", "73"]) == 0
    assert json.loads(capsys.readouterr().out)["slug"] == "vocab_parallel_cross_entropy_loss"
    assert main(["reference", "nothing"]) == 2
    assert "no problem 'nothing'" in capsys.readouterr().err
    assert main(["check", "--dtypes", "fp32,int8"]) == 2
    assert "no run dtype 'int8'; there are bf16, fp16, fp32" in capsys.readouterr().err
