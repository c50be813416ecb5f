"""Calls under a profiler in real ranks: they label and explain, and nothing that happens in them changes a verdict."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from uuid import uuid4

import pytest

from evaluator import cli
from evaluator.contract import Code, Job, Phase, PhaseStatus, Report, TracePart
from evaluator.judge import evaluate
from problems.suite.reference import reference_source
from problems.suite.registry import get

pytestmark = pytest.mark.sandbox


def judged(source: str) -> tuple[Report, list[TracePart]]:
    parts: list[TracePart] = []
    job = Job(
        attempt_id=uuid4(),
        problem_id=13,
        target="cpu-gloo",
        world_size=2,
        file_name="13_gemm_allreduce_pytorch.py",
        source=source,
        profile=True,
    )
    return evaluate(job, with_timing=False, traces=parts.append), parts


def test_the_reference_is_known_again_and_its_traces_show_its_calls() -> None:
    report, parts = judged(reference_source(get("13")))
    assert report.code is Code.CORRECT, report.message
    assert report.similarity is not None and report.similarity.label == "baseline duplicate"
    assert "torch.distributed" in report.mechanisms and "wrapper of the reference" in report.mechanisms
    assert report.census is not None and report.profile is not None
    shares = {part.origin: part.share for part in report.census.origins}
    assert shares["communication"] > 0 and shares["library"] > 0 and "own" not in shares
    assert {entry.name for entry in report.census.entries} >= {"aten::matmul", "c10d::allreduce_"}
    assert [part.rank for part in parts] == [0, 1]
    for part, rank in zip(parts, report.profile.ranks, strict=True):
        data = base64.b64decode(part.data)
        assert part.sha256 == rank.trace_sha256 == hashlib.sha256(data).hexdigest()
        events = json.loads(gzip.decompress(data))["traceEvents"]
        assert [event["cat"] for event in events if event["ph"] == "X"].count("call") == report.profile.calls
    assert "communication" in report.profile.reading


SPOILED = {
    "garbage": "sys.modules['runner.observing'].Watch.record = lambda self, capacity: b'[' * 1000",
    "a length beyond the region": (
        "sys.modules['runner.values'].Region.write_text = lambda region, text:"
        " region.map.__setitem__(slice(8), b'\\xff' * 8)"
    ),
    "an end of the process": "sys.modules['runner.observing'].Watch.record = lambda self, capacity: os._exit(1)",
}


@pytest.mark.parametrize("how", SPOILED)
def test_a_submission_that_spoils_its_record_stays_correct_without_a_census(how: str) -> None:
    report, parts = judged(f"{reference_source(get('13'))}\nimport os, sys\n{SPOILED[how]}\n")
    assert report.code is Code.CORRECT, report.message
    assert report.census is None and report.profile is None and parts == []
    phase = next(phase for phase in report.phases if phase.phase is Phase.CENSUS)
    assert phase.status is PhaseStatus.PASSED and "calls under the profiler failed" in phase.detail
    assert "torch.distributed (static)" in report.mechanisms


def test_the_command_line_writes_traces(tmp_path: object, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "traces"  # type: ignore[operator]
    file = tmp_path / "13_gemm_allreduce_pytorch.py"  # type: ignore[operator]
    file.write_text(reference_source(get("13")))
    options = ["--problem", "13", "--world-size", "2", "--no-timing", "--profile", str(folder)]
    assert cli.main(["evaluate", str(file), *options]) == cli.EXIT_OK
    assert sorted(path.name for path in folder.iterdir()) == ["rank_0.trace.json.gz", "rank_1.trace.json.gz"]
    assert json.loads(gzip.decompress((folder / "rank_0.trace.json.gz").read_bytes()))["traceEvents"]
    assert "Under the profiler" in capsys.readouterr().out
