"""A job that poisons the GPU: its own verdict counts, the host takes no other, and the site says why."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from leaderboard import canaries
from leaderboard.models import Attempt, AuditEvent, Run, Verdict, Worker
from tests.factories import TargetFactory, WorkerFactory
from tests.gpu_host import GpuHost
from tests.pipeline.conftest import Site, wait_for, wait_for_verdicts

pytestmark = pytest.mark.django_db(transaction=True)

Submit = Callable[..., Run]
STOPPED = "Canceling queue eval.gpu-emulated"
FOUND = "GPU 0: cuMemsetD32_v2 fails with CUDA_ERROR_LAUNCH_FAILED."


@pytest.fixture
def gpu_site(site: Site) -> Site:
    """Its worker finds itself on a host with one GPU."""
    site.changes |= GpuHost.make(site.folder).environment(os.environ["PATH"])
    site.worker.delete()
    site.worker = WorkerFactory(target=TargetFactory(name="gpu-emulated", device="cuda"))
    return site


def wait_until_out(site: Site) -> None:
    """The worker reads its queue no more, and the site knows why."""
    wait_for(lambda: STOPPED in site.log("evaluation"), "the worker to leave its queue", site)
    wait_for(lambda: Worker.objects.get().refusal, "the site to know", site)
    assert Worker.objects.get().refusal.endswith(FOUND)
    assert AuditEvent.objects.get(action="refuse worker").reason.endswith(FOUND)
    assert not Worker.objects.online().exists()


def test_the_verdict_counts_and_nothing_else_is_judged(gpu_site: Site, submit: Submit) -> None:
    run = submit("judge: poison")
    gpu_site.start("results", "evaluation")
    assert wait_for_verdicts(gpu_site, run)["poison"].code == "correct"
    wait_until_out(gpu_site)
    waiting = submit("judge: correct")
    canaries.send(gpu_site.worker, "to see what it answers")  # its own queue is read all the time
    answered = gpu_site.worker.canaries.filter(passed=False)
    wait_for(answered.exists, "the canary to be answered", gpu_site)
    assert all("Not judged. The health probe" in canary.message for canary in answered)
    assert len(gpu_site.judged()) == 1  # the judge was started for the first file alone
    assert Attempt.objects.get(evaluation__run=waiting).state == "queued"


def test_a_judge_that_died_of_it_costs_no_second_attempt_on_the_same_gpu(gpu_site: Site, submit: Submit) -> None:
    run = submit("judge: poison crash")
    gpu_site.start("results", "evaluation")
    wait_until_out(gpu_site)
    again = Attempt.objects.filter(evaluation__run=run, number=2, state="queued")
    wait_for(again.exists, "the file to wait for another host", gpu_site)
    assert len(gpu_site.judged()) == 1
    assert not Verdict.objects.exists()
