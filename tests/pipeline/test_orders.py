"""Workers obey: what the site decides about a host reaches it through the broker, with its own rights there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leaderboard import canaries, lifecycle, workers
from leaderboard.models import Attempt, AuditEvent, Run, Verdict, WorkerState
from problems.models import Suite
from tests.factories import ProblemVersionFactory, SuiteFactory, UserFactory
from tests.pipeline.conftest import Site, host_suite, wait_for, wait_for_lease, wait_for_verdicts

pytestmark = pytest.mark.django_db(transaction=True)

Submit = Callable[..., Run]
STOPPED, STARTED = "Canceling queue eval.cpu-gloo", "Started consuming from eval.cpu-gloo"


def test_a_drained_worker_finishes_what_it_holds_and_rests_until_it_is_activated(site: Site, submit: Submit) -> None:
    site.start("results", "evaluation")
    first = submit("judge: sleep 3")
    wait_for_lease(site, first)
    maintainer = UserFactory(is_staff=True)
    workers.set_state(site.worker, WorkerState.DRAINED, maintainer, reason="the fan is loud")
    assert wait_for_verdicts(site, first)["sleep 3"].attempt.number == 1
    wait_for(lambda: site.log("evaluation").rstrip().count(STOPPED) >= 1, "the worker to leave its queue", site)
    assert "the fan is loud" in site.log("evaluation")
    second = submit("judge: correct")
    wait_for(lambda: site.broker.client().llen("eval.cpu-gloo") == 1, "the second file to wait in the broker", site)
    site.worker.refresh_from_db()
    seen = site.worker.last_seen_at
    wait_for(lambda: type(site.worker).objects.get().last_seen_at > seen, "a sign of life", site)  # it rests, but lives
    assert not Verdict.objects.filter(evaluation__run=second).exists()
    workers.set_state(site.worker, WorkerState.ACTIVE, maintainer, reason="new fan")
    assert wait_for_verdicts(site, second)["correct"].attempt.number == 1


def test_a_host_of_another_suite_takes_no_work_and_says_why(site: Site, submit: Submit) -> None:
    run = submit("judge: correct")
    Suite.objects.update(is_current=False)
    other = SuiteFactory(size=0, is_current=True)
    other.problem_versions.add(ProblemVersionFactory(problem__number=500))
    site.start("results", "evaluation")
    wait_for(lambda: type(site.worker).objects.get().refusal, "the worker to be refused", site)
    wait_for(lambda: "orders changed" in site.log("evaluation"), "the worker to know", site)
    assert "the site asks for" in site.log("evaluation")
    assert Attempt.objects.get().state == "queued"
    Suite.objects.filter(pk=other.pk).update(is_current=False)
    workers.suite_changed()
    assert len(wait_for_verdicts(site, run)) == 1


def test_a_file_for_another_version_of_the_problem_waits_with_the_reason(site: Site, submit: Submit) -> None:
    run = submit("judge: correct")
    versions = run.evaluations.get().suite.problem_versions.filter(problem=run.submissions.get().problem)
    versions.update(digest="0" * 64)
    Suite.objects.update(is_current=False)  # an evaluation by an older suite: the hosts have gone on
    Attempt.objects.update(sent_at=None)
    site.broker.client().delete("eval.cpu-gloo")
    lifecycle.dispatch.refill(site.worker.target_id)
    site.start("results", "evaluation")
    wait_for(lambda: Attempt.objects.get().note, "the attempt to be declined", site)
    attempt = Attempt.objects.get()
    assert "is to be judged by version 000000000000" in attempt.note
    assert (attempt.state, attempt.number, site.judged()) == ("queued", 1, [])


def test_a_host_whose_canary_fails_is_out_until_two_pass(site: Site, submit: Submit) -> None:
    """The canaries come through the host's own queue, to which it listens all the time."""
    host_suite()
    failing = site.folder / "judged" / "canaries fail"
    failing.touch()
    site.start("results", "evaluation")
    wait_for(lambda: STARTED in site.log("evaluation") or site.worker.canaries.exists(), "the worker to work", site)

    def answered() -> bool:
        return not site.worker.canaries.pending().exists()

    def state() -> str:
        return str(type(site.worker).objects.get().state)

    assert canaries.send(site.worker, "first")
    wait_for(lambda: state() == WorkerState.FAILING, "the worker to be out", site)
    wait_for(lambda: STOPPED in site.log("evaluation"), "the worker to leave its queue", site)
    run = submit("judge: correct")
    failing.unlink()
    wait_for(answered, "the canary that follows a failure to be answered", site)
    while state() == WorkerState.FAILING:
        canaries.send(site.worker, "next")
        wait_for(answered, "the next canary to be answered", site)
    assert list(site.worker.canaries.order_by("-sent_at").values_list("passed", flat=True)[:2]) == [True, True]
    assert len(wait_for_verdicts(site, run)) == 1
    states = AuditEvent.objects.filter(action__startswith="set worker").order_by("created_at")
    assert [event.action for event in states] == ["set worker failing", "set worker active"]
    assert Attempt.objects.count() == 1  # of the run; canaries make none
