"""The way of an attempt through real processes: whatever dies or is lost, each submission gets exactly one verdict."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from evaluator.contract import Progress, Signed
from evaluator.messaging import RECORD_TASK, RESULTS_QUEUE
from leaderboard import dispatch, lifecycle, turns
from leaderboard.models import Attempt, AuditEvent, EvaluationScore, EvaluationState, Run, Verdict
from pkbsite.celery import app
from tests.factories import UserFactory, WorkerFactory
from tests.pipeline.conftest import Site, wait_for, wait_for_lease, wait_for_verdicts
from tests.reports import report_for

pytestmark = pytest.mark.django_db(transaction=True)

Submit = Callable[..., Run]
ALL = ("results", "housekeeping", "beat", "evaluation")


def judges(site: Site) -> list[int]:
    """Process ids of the judges of this site that live. A dead one that nobody waited for has no environment."""
    mark = f"PKB_STUB_FOLDER={site.folder}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if b"tests.pipeline.stub_judge" in (folder / "cmdline").read_bytes():
                found += [int(folder.name)] * (mark in (folder / "environ").read_bytes())
        except OSError:
            continue  # it ended while we looked
    return found


def test_files_of_every_kind_get_their_verdict(site: Site, submit: Submit) -> None:
    site.start("results", "evaluation")
    run = submit("judge: correct", "judge: code wrong_values", "judge: code deadlock")
    verdicts = wait_for_verdicts(site, run)
    assert {source: v.code for source, v in verdicts.items()} == {
        "correct": "correct",
        "code wrong_values": "wrong_values",
        "code deadlock": "deadlock",
    }
    evaluation = run.evaluations.get()
    assert evaluation.state == EvaluationState.COMPLETED
    assert EvaluationScore.objects.ranked().get().correct == 1
    attempt = Attempt.objects.filter(evaluation=evaluation).first()
    assert attempt is not None
    assert (attempt.worker, attempt.state, bool(attempt.host)) == (site.worker, "recorded", True)
    site.worker.refresh_from_db()
    assert site.worker.versions["celery"]


def test_worker_killed_in_mid_job_costs_one_attempt_and_no_verdict(site: Site, submit: Submit) -> None:
    site.start(*ALL)
    run = submit("judge: sleep_once 600")
    lost = wait_for_lease(site, run)
    assert len(judges(site)) == 1
    site.kill("evaluation")
    wait_for(lambda: not judges(site), "the judge to die too")
    site.start("evaluation")
    verdict = wait_for_verdicts(site, run)["sleep_once 600"]
    assert (verdict.code, verdict.attempt.number) == ("correct", 2)
    lost.refresh_from_db()
    assert lost.state == "lost"
    assert "gave no sign of life for 2 s" in lost.reason


def test_long_evaluation_keeps_its_lease(site: Site, submit: Submit) -> None:
    """The judge says nothing for three leases; the worker's heartbeat speaks for it."""
    site.start(*ALL)
    verdict = wait_for_verdicts(site, submit("judge: sleep 6"))["sleep 6"]
    assert (verdict.code, verdict.attempt.number) == ("correct", 1)
    assert len(site.judged()) == 1


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("judge: crash", "exit status 3 without a report. Last words: CUDA driver is gone"),
        ("judge: flood", "bytes in a line"),
        ("judge: nonsense", "neither progress nor report"),
    ],
)
def test_broken_judge_is_our_failure_after_three_tries(site: Site, submit: Submit, source: str, words: str) -> None:
    site.start("results", "evaluation")
    verdict = next(iter(wait_for_verdicts(site, submit(source)).values()))
    assert (verdict.code, verdict.attempt.number) == ("harness_failure", 3)
    reasons = Attempt.objects.filter(state="lost").values_list("reason", flat=True)
    assert len(reasons) == 2
    assert all(words in reason for reason in reasons)
    assert len(site.judged()) == 3


def test_wake_up_delivered_twice_is_judged_once(site: Site, submit: Submit) -> None:
    run = submit("judge: correct")
    attempt = Attempt.objects.get()
    dispatch.send([attempt.pk])
    site.start("results", "evaluation")
    wait_for_verdicts(site, run)
    wait_for(lambda: "dropped" in site.log("evaluation"), "the second wake-up to be dropped", site)
    assert site.judged() == [str(attempt.pk)]


def test_one_file_of_a_team_overtakes_another_teams_long_queue(site: Site, submit: Submit) -> None:
    """Thirty files are queued before it; only those that are in the broker already, and one more, come first."""
    submit(*["judge: correct"] * 30)
    run = submit("judge: code deadlock")
    site.start("results", "evaluation")
    verdict = wait_for_verdicts(site, run)["code deadlock"]
    assert Verdict.objects.filter(created_at__lt=verdict.created_at).count() <= turns.SMALLEST_WINDOW + 1


def test_cancelled_run_stops_the_judge(site: Site, submit: Submit) -> None:
    site.start("results", "evaluation")
    run = submit("judge: sleep 600")
    wait_for_lease(site, run)
    lifecycle.cancel_run(run, UserFactory())
    wait_for(lambda: not judges(site), "the judge to be stopped", site)
    assert not Verdict.objects.exists()
    again = submit("judge: correct")
    assert wait_for_verdicts(site, again)["correct"].code == "correct"  # the worker is free


def test_broker_down_at_confirm_delays_and_loses_nothing(site: Site, submit: Submit) -> None:
    site.broker.stop()
    run = submit("judge: correct", "judge: code too_slow")
    assert set(Attempt.objects.values_list("state", "sent_at")) == {("queued", None)}
    site.broker.start()
    site.start(*ALL)
    assert len(wait_for_verdicts(site, run)) == 2


def test_flushed_broker_loses_nothing(site: Site, submit: Submit) -> None:
    site.start(*ALL)
    run = submit("judge: sleep_once 4", *[f"judge: code {code}" for code in ("too_slow", "race", "deadlock")])
    wait_for_lease(site, run)
    site.broker.client().flushall()
    verdicts = wait_for_verdicts(site, run)
    assert sorted(v.code for v in verdicts.values()) == ["correct", "deadlock", "race", "too_slow"]
    assert verdicts["sleep_once 4"].attempt.number == 1  # what ran went on


def test_restarted_broker_loses_nothing(site: Site, submit: Submit) -> None:
    site.start(*ALL)
    run = submit("judge: sleep_once 4", "judge: code race")
    wait_for_lease(site, run)
    site.broker.stop()
    site.broker.start()
    assert len(wait_for_verdicts(site, run)) == 2


def test_results_worker_killed_and_restarted_records_everything(site: Site, submit: Submit) -> None:
    site.start(*ALL)
    run = submit(*["judge: correct"] * 5)
    wait_for(Verdict.objects.exists, "the first verdict", site)
    site.kill("results")
    site.start("results")
    wait_for(lambda: Verdict.objects.filter(evaluation__run=run).count() == 5, "5 verdicts", site)


def test_forged_late_and_foreign_reports_are_refused_and_the_recorder_lives_on(site: Site, submit: Submit) -> None:
    site.start("results")
    run = submit("judge: correct")
    attempt = Attempt.objects.select_related("evaluation__target", "submission__problem", "submission__run").get()
    body = report_for(attempt).model_dump_json()
    stranger = WorkerFactory()

    def post(worker: str, key: str) -> None:
        signed = Signed.seal(worker=worker, kind="report", body=body, key=bytes.fromhex(key))
        app.send_task(RECORD_TASK, args=[signed.model_dump_json()], queue=RESULTS_QUEUE)

    lifecycle.record_progress(Progress(attempt_id=attempt.pk, sequence=1, phase="trials"), site.worker)
    post(site.worker.name, stranger.key)
    post(stranger.name, stranger.key)
    app.send_task("os.system", args=["true"], queue=RESULTS_QUEUE)
    app.send_task(RECORD_TASK, args=["{" * 1_000], queue=RESULTS_QUEUE)
    refusals = AuditEvent.objects.filter(action="refuse message")
    wait_for(lambda: refusals.count() == 2, "two refusals", site)
    assert not Verdict.objects.exists()
    post(site.worker.name, site.worker.key)
    assert wait_for_verdicts(site, run)["correct"].code == "correct"
