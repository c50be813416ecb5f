"""The pages of a run that waits, runs, or failed for reasons of ours: what they say, and their buttons."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from evaluator.contract import Code
from leaderboard import lifecycle
from leaderboard.models import (
    Attempt,
    AttemptState,
    Evaluation,
    EvaluationState,
    QuotaEntry,
    Verdict,
)
from problems.models import Problem
from tests.factories import (
    AttemptFactory,
    EvaluationFactory,
    RunFactory,
    SubmissionFactory,
    TargetFactory,
    VerdictFactory,
    WorkerFactory,
)
from tests.pages.site import Site
from tests.pages.test_pages import show


@pytest.fixture
def waiting(site: Site) -> Evaluation:
    """An evaluation of the site's team with one queued file, behind four files of others."""
    others = EvaluationFactory(suite=site.suite)
    for turn in range(4):
        AttemptFactory(evaluation=others, turn=turn)
    run = RunFactory(model=site.run.model, team=site.team)
    evaluation = EvaluationFactory(run=run, suite=site.suite, state=EvaluationState.RUNNING)
    submission = SubmissionFactory(run=run, problem=Problem.objects.get(number=1))
    AttemptFactory(evaluation=evaluation, submission=submission, turn=9)
    return evaluation


def page_of(evaluation: Evaluation) -> str:
    return show(reverse("run-live", args=[evaluation.run.public_id]))


def charged(seconds: float) -> None:
    QuotaEntry.objects.create(
        team=RunFactory().team, target=TargetFactory(), attempt=AttemptFactory(state="lost"), seconds=seconds
    )


def test_a_waiting_run_says_its_place_the_workers_and_the_wait(waiting: Evaluation) -> None:
    WorkerFactory.create_batch(2, last_seen_at=timezone.now())
    charged(40)
    charged(80)
    page = page_of(waiting)
    assert "4 files of others stand before the next one of this run" in page
    assert "2 workers online, expected wait about 90.0 s." in page  # four files of 60 s, one of the two workers first


def test_a_run_without_workers_says_that_nothing_is_lost(waiting: Evaluation) -> None:
    WorkerFactory(last_seen_at=timezone.now() - timedelta(hours=1))
    page = page_of(waiting)
    assert "no worker is online: files wait until one is, and nothing is lost." in page
    assert "expected wait" not in page


def test_the_place_costs_the_same_for_a_long_queue(waiting: Evaluation) -> None:
    def queries() -> int:
        with CaptureQueriesContext(connection) as captured:
            page_of(waiting)
        return len(captured)

    charged(5)
    before = queries()
    others = Attempt.objects.exclude(evaluation=waiting).first()
    assert others is not None
    for turn in range(30):
        AttemptFactory(evaluation=others.evaluation, turn=turn)
        charged(5)
    assert queries() == before


# Stop and try again ---------------------------------------------------------------------------------------------------


def test_stopping_asks_first_and_works_without_script(site: Site, waiting: Evaluation) -> None:
    client = site.client("member")
    address = reverse("run-cancel", args=[waiting.run.public_id])
    page = show(reverse("run", args=[waiting.run.public_id]), client)
    assert f'href="{address}?evaluation={waiting.public_id}"' in page
    question = show(f"{address}?evaluation={waiting.public_id}", client)
    assert '<form method="post"' in question
    assert Attempt.objects.get(evaluation=waiting).state == AttemptState.QUEUED
    client.post(address, {"evaluation": waiting.public_id})
    assert Attempt.objects.get(evaluation=waiting).state == AttemptState.CANCELLED
    assert client.get(f"{address}?evaluation=nothinghere1").status_code == 404


@pytest.fixture
def failed(site: Site) -> Verdict:
    """The site's evaluation with one more file, which we failed to judge."""
    submission = SubmissionFactory(run=site.run, problem=Problem.objects.get(number=4))
    verdict = VerdictFactory(
        evaluation=site.evaluation,
        submission=submission,
        code=Code.HARNESS_FAILURE,
        message="Not judged: 3 attempts failed for reasons of ours, not of the file.",
    )
    Attempt.objects.filter(pk=verdict.attempt_id).update(number=lifecycle.MAX_ATTEMPTS)
    return verdict


@pytest.mark.parametrize(
    ("who", "button"), [("anonymous", False), ("stranger", False), ("member", True), ("maintainer", True)]
)
def test_run_and_submission_say_that_we_failed_and_offer_a_retry(
    site: Site, failed: Verdict, who: str, button: bool
) -> None:
    for address in (
        reverse("run", args=[site.run.public_id]),
        reverse("submission", args=[failed.submission.public_id]),
    ):
        page = show(address, site.client(who))
        assert "1 file was not judged for reasons of ours." in page
        assert ("Try it again</button>" in page) == button


def test_one_click_tries_again(site: Site, failed: Verdict) -> None:
    client = site.client("member")
    address = reverse("run-retry", args=[site.run.public_id])
    page = client.post(address, {"evaluation": site.evaluation.public_id}, follow=True).content.decode()
    assert "1 file is in the queue again." in page
    assert Attempt.objects.active().get().submission == failed.submission
    page = client.post(address, {"evaluation": site.evaluation.public_id}, follow=True).content.decode()
    assert "There was nothing to try again" in page


def test_a_file_that_failed_by_itself_offers_no_retry(site: Site) -> None:
    deadlock = site.evaluation.verdicts.get(code="deadlock")
    page = show(reverse("submission", args=[deadlock.submission.public_id]), site.client("member"))
    assert "reasons of ours" not in page
    client = site.client("member")
    client.post(reverse("run-retry", args=[site.run.public_id]), {"evaluation": site.evaluation.public_id})
    assert not Attempt.objects.active().exists()
