"""Runs of every precision: which dtype a problem is posed and judged in."""

from __future__ import annotations

from uuid import uuid4

import pytest
import torch

from evaluator import targets
from evaluator.contract import Job, Precision
from evaluator.judge import evaluate
from problems.suite import registry
from problems.suite.base import RUN_DTYPES
from problems.suite.reference import reference_source

OWN = {26, 61, 64, 66}
"""Problems that are float32 whatever the precision of the run."""


def test_few_problems_have_a_dtype_of_their_own() -> None:
    for problem in registry.all_problems():
        own = problem.id in OWN
        for precision in RUN_DTYPES:
            wanted = torch.float32 if own else precision
            cases = problem.cases(world_size=4, dtype=precision, device="cuda", secret=torch.Generator().manual_seed(1))
            assert {case.dtype for case in cases} == {wanted}, problem.slug
            assert problem.check_case(world_size=4, dtype=precision).dtype == wanted


@pytest.mark.sandbox
@pytest.mark.parametrize("number", [26, 66])
def test_the_judge_takes_such_a_problem_in_a_run_of_any_precision(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The CPU target runs fp32 only; here it is lent the precisions of the others."""
    lent = targets.target("cpu-gloo").model_copy(update={"precisions": tuple(Precision)})
    monkeypatch.setattr(targets, "target", lambda name: lent)
    job = Job(
        attempt_id=uuid4(),
        problem_id=number,
        target="cpu-gloo",
        world_size=2,
        precision=Precision.BF16,
        file_name="reference.py",
        source=reference_source(registry.find(number)),
    )
    report = evaluate(job, with_timing=False)
    assert report.code == "correct", report.message
    assert report.precision is Precision.BF16
    assert "The inputs of this problem are float32 whatever the precision of the run." in report.hints
