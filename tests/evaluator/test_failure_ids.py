"""Through the whole judge: the same failure has the same id on every run, another failure another."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest

from evaluator.contract import Code, Job, Report
from evaluator.judge import evaluate

pytestmark = pytest.mark.sandbox

KERNELS = Path(__file__).parent / "kernels"


def judged(name: str) -> Report:
    source = (KERNELS / f"{name}.py").read_text(encoding="utf-8")
    job = Job(attempt_id=uuid4(), problem_id=13, target="cpu-gloo", world_size=4, file_name="k.py", source=source)
    return evaluate(job, with_timing=False)


def test_an_id_is_that_of_the_failure() -> None:
    first, again, other = judged("one_rank_raises"), judged("one_rank_raises"), judged("wrong_shape")
    assert first.code is again.code is Code.RUNTIME_ERROR and other.code is Code.WRONG_STRUCTURE
    assert first.attempt_id != again.attempt_id
    assert len(first.failure_id) == 12 and first.failure_id == again.failure_id != other.failure_id
    failed = next(phase for phase in first.phases if phase.status == "failed")
    assert failed.detail == first.message, "the phase that failed says why"
