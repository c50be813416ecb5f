"""The command line: what goes to which stream, and what the exit status says."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from evaluator.cli import EXIT_FAULT, EXIT_HARNESS, EXIT_OK, EXIT_USAGE, main
from evaluator.contract import Job, Progress, Report
from evaluator.page import page

KERNELS = Path(__file__).parent / "kernels"
ROOT = Path(__file__).parents[2]


def command(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "evaluator", *arguments],
        cwd=ROOT,
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_json_is_one_object_on_standard_output() -> None:
    done = command("evaluate", str(KERNELS / "syntax_error.py"), "--problem", "13", "--json")
    report = json.loads(done.stdout)
    assert done.returncode == EXIT_FAULT
    assert report["code"] == "invalid_file"
    assert {"decision", "speedup", "compatible", "phases", "ranks", "isolation", "versions"} <= report.keys()
    assert {"correct", "speedup"} <= report["compatible"].keys()
    assert "static" in done.stderr


def test_without_json_there_is_a_page_for_people() -> None:
    done = command("evaluate", str(KERNELS / "no_solution.py"), "--problem", "gemm_allreduce")
    assert done.stdout.startswith("INVALID_FILE  The file defines no solution")
    assert "Phases" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere.py", "--problem", "13"], "nowhere.py cannot be read: No such file or directory."),
        ([str(KERNELS / "zeros.py"), "--problem", "9999"], "no problem '9999'"),
        ([str(KERNELS / "zeros.py"), "--problem", "13", "--target", "abacus"], "There is no target 'abacus'"),
        ([str(KERNELS / "zeros.py"), "--problem", "13", "--world-size", "99"], "world_size"),
    ],
)
def test_wrong_use_is_told_in_a_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", *arguments]) == EXIT_USAGE
    assert sentence in capsys.readouterr().err


def test_a_file_that_is_no_text_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "kernel.py").write_bytes(b"\xff\xfe\x00")
    assert main(["evaluate", str(tmp_path / "kernel.py"), "--problem", "13"]) == EXIT_USAGE
    assert "not UTF-8" in capsys.readouterr().err


def test_what_a_host_cannot_serve_has_its_own_exit_status(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [str(KERNELS / "zeros.py"), "--problem", "13", "--target", "h100x8", "--precision", "bf16"]
    assert main(["evaluate", *arguments, "--json"]) == EXIT_HARNESS
    assert json.loads(capsys.readouterr().out)["code"] == "harness_failure"


def test_the_worker_gets_json_lines_with_the_report_last() -> None:
    job = Job(
        attempt_id=uuid4(), problem_id=13, target="cpu-gloo", world_size=4, file_name="x.py", source="def solution(:"
    )
    done = command("judge", text=job.model_dump_json())
    *progress, last = done.stdout.splitlines()
    assert done.returncode == EXIT_OK
    assert Report.model_validate_json(last).attempt_id == job.attempt_id
    assert [Progress.model_validate_json(line).sequence for line in progress] == list(range(len(progress)))


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"source": "x"}'])
def test_a_broken_job_is_refused_without_a_report(text: str) -> None:
    done = command("judge", text=text)
    assert done.returncode == EXIT_USAGE
    assert done.stdout == ""
    assert "not valid" in done.stderr


@pytest.mark.sandbox
def test_the_page_shows_ranks_cases_and_where_the_time_went() -> None:
    done = command("evaluate", str(KERNELS / "one_rank_raises.py"), "--problem", "13", "--json")
    text = page(Report.model_validate_json(done.stdout))
    assert "RUNTIME_ERROR  Rank 3 failed in solution: ValueError: no such luck" in text
    assert "solution.py" in text
    assert "overhead" in text
