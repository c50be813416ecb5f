"""The same way with the real judge and its sandbox: reference and wrong kernel, from the queue to the ranking."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from django.db import transaction

from leaderboard import hardware, lifecycle
from leaderboard.models import EvaluationScore, Target
from problems import catalogue
from problems.models import Problem
from tests.factories import EvaluationFactory, RunFactory, SourceFileFactory, SubmissionFactory, WorkerFactory
from tests.pipeline import conftest
from tests.pipeline.conftest import Site, wait_for_verdicts

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.sandbox]

RIGHT = """\
import torch
import torch.distributed as dist


def solution(A_local, B_local):  # no all-reduce: that would be the reference, which has no place in a ranking
    mine = A_local @ B_local
    everybody = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(everybody, mine)
    return torch.stack(everybody).sum(dim=0)
"""
FORGETS_THE_SUM = "def solution(A_local, B_local):\n    return A_local @ B_local\n"


def test_real_files_are_really_judged(site: Site, settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conftest, "PATIENCE", 180.0)
    hardware.load()
    suite = catalogue.load(json.loads(settings.SUITE_MANIFEST.read_text())).suite
    site.worker = WorkerFactory(name="real", target=Target.objects.get(name="cpu-gloo"))
    site.judge = f"{sys.executable} -m evaluator judge"
    site.start("results", "evaluation")
    problem = Problem.objects.get(number=13)
    with transaction.atomic():
        evaluation = EvaluationFactory(run=RunFactory(track="multi-sample"), suite=suite, target=site.worker.target)
        files = [
            SubmissionFactory(run=evaluation.run, problem=problem, sample=i, source=SourceFileFactory(text=text))
            for i, text in enumerate((RIGHT, FORGETS_THE_SUM))
        ]
        lifecycle.queue_attempts(evaluation, [file.pk for file in files])
    verdicts = wait_for_verdicts(site, evaluation.run)
    assert {text: verdicts[text].code for text in (RIGHT, FORGETS_THE_SUM)} == {
        RIGHT: "correct",
        FORGETS_THE_SUM: "wrong_values",
    }
    assert verdicts[RIGHT].speedup is not None
    score = EvaluationScore.objects.ranked().get()
    assert (score.correct, score.pass_at_k["1"]) == (1, 0.5 / score.problems)
