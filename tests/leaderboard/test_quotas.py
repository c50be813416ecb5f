"""What a team may use: who is charged for what, who is told no, and when there is room again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import BytesIO
from typing import Any

import pytest

from evaluator.contract import Claim, Code
from leaderboard import lifecycle, quotas
from leaderboard.intake import Declaration, LimitReached, Sent, confirm, preview
from leaderboard.models import Attempt, AuditEvent, QuotaEntry, Run, Team, Track, Upload, UploadState
from tests.factories import (
    AttemptFactory,
    EvaluationFactory,
    MembershipFactory,
    RankedModelFactory,
    SuiteFactory,
    TargetFactory,
    TeamFactory,
    UserFactory,
    WorkerFactory,
)
from tests.reports import report_for

pytestmark = pytest.mark.django_db
NOW = datetime(2026, 12, 15, 12, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture(autouse=True)
def limits(settings: Any) -> Any:
    """1,000 s in seven days, and two single-shot runs a month."""
    settings.QUOTA_SECONDS, settings.QUOTA_WINDOW_SECONDS, settings.SINGLE_SHOT_RUNS = 1_000, 7 * 86_400, 2
    return settings


def used(team: Team, seconds: float, at: datetime) -> QuotaEntry:
    return QuotaEntry.objects.create(
        team=team, target=TargetFactory(), attempt=AttemptFactory(state="lost"), seconds=seconds, created_at=at
    )


def sent(files: int = 1, team: Team | None = None) -> tuple[Upload, Declaration, dict[str, Any]]:
    """An upload with so many files, what the team declares, and who confirms."""
    suite, model = SuiteFactory(size=files), RankedModelFactory(**({"team": team} if team else {}))
    user = MembershipFactory(team=model.team).user
    numbers = suite.problem_versions.values_list("problem__number", flat=True)
    kernels = [Sent(f"{number}.py", BytesIO(b"def solution(x): return x")) for number in numbers]
    declaration = Declaration(
        team=model.team,
        model=model,
        track=Track.MULTI_SAMPLE,
        backend="pytorch",
        precision="fp32",
        targets=[TargetFactory()],
        licence="MIT",
    )
    return preview(user, kernels, suite=suite), declaration, {"user": user, "suite": suite}


# Who is charged -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "charged"), [(Code.CORRECT, 1), (Code.DEADLOCK, 1), (Code.HARNESS_FAILURE, 0)])
def test_only_what_is_the_submissions_own_is_charged(code: Code, charged: int) -> None:
    attempt = AttemptFactory(number=lifecycle.MAX_ATTEMPTS)
    lifecycle.record_report(report_for(attempt, code=code, seconds=30), WorkerFactory())
    assert QuotaEntry.objects.count() == charged


def test_a_submission_that_was_lost_twice_is_charged_once() -> None:
    attempt, worker = AttemptFactory(), WorkerFactory()
    for _ in range(2):
        current = Attempt.objects.active().get()
        lifecycle.lease_attempt(Claim(attempt_id=current.pk, attempt_number=current.number), worker, at=NOW)
        lifecycle.expire_lease(current.pk, at=NOW + DAY)
    last = Attempt.objects.active().get(submission=attempt.submission)
    lifecycle.record_report(report_for(last, seconds=30), worker)
    assert [entry.seconds for entry in QuotaEntry.objects.all()] == [30]


# Who is told no -------------------------------------------------------------------------------------------------------


def test_the_answer_says_used_limit_and_when() -> None:
    team, target = TeamFactory(name="Kernel Lab"), TargetFactory()
    used(team, 700, NOW - 6 * DAY)
    used(team, 200, NOW - 2 * DAY)
    refusal = quotas.check_seconds(team, [target], 1, at=NOW)
    assert refusal is not None
    assert refusal.retry_at == NOW + DAY, "then the 700 s leave the window"
    assert refusal.sentence == (
        "The team Kernel Lab has used 900 s of its 1,000 evaluation seconds on cpu-gloo in the last 7 days; this run "
        "of 1 file needs about 450 s. There is room again from 16 December 2026, 12:00 UTC on. Your upload stays as it "
        "is: confirm it then."
    )
    assert quotas.check_seconds(team, [target], 1, at=refusal.retry_at) is None


def test_what_has_left_the_window_counts_no_more() -> None:
    team, target = TeamFactory(), TargetFactory()
    used(team, 999, NOW - 7 * DAY)
    assert quotas.usage(team, target, at=NOW).used == 0


def test_other_teams_and_other_targets_have_their_own() -> None:
    team, target = TeamFactory(), TargetFactory()
    used(team, 999, NOW - DAY)
    assert quotas.check_seconds(team, [target], 1, at=NOW) is not None
    assert quotas.check_seconds(team, [TargetFactory(name="h100x4")], 1, at=NOW) is None
    assert quotas.usage(TeamFactory(), target, at=NOW).used == 0


def test_what_waits_is_counted_before_it_is_charged() -> None:
    """Otherwise a team could confirm any number of runs before the first verdict."""
    team = TeamFactory()
    upload, declaration, who = sent(files=10, team=team)  # nothing known yet: 60 s a file
    confirm(upload, declaration, **who)
    now = quotas.usage(team, TargetFactory(), at=NOW)
    assert (now.used, now.reserved, now.left) == (0, 600, 400)
    upload, declaration, who = sent(files=10, team=team)
    with pytest.raises(LimitReached, match="what still waits or runs is counted with 600 s"):
        confirm(upload, declaration, **who)


def test_a_refusal_loses_nothing() -> None:
    upload, declaration, who = sent(files=3)
    used(declaration.team, 995, datetime.now(UTC) - DAY)
    with pytest.raises(LimitReached):
        confirm(upload, declaration, **who)
    upload.refresh_from_db()
    assert upload.state == UploadState.PREVIEWED
    assert not Run.objects.filter(upload=upload).exists()
    quotas.grant(declaration.team, TargetFactory(), 5_000, UserFactory(), reason="reviewers asked for it")
    assert confirm(upload, declaration, **who).submissions.count() == 3


def test_a_run_that_never_fits_is_told_how_many_files_do() -> None:
    team = TeamFactory()
    used(TeamFactory(), 100, NOW - DAY)  # files take 100 s here
    refusal = quotas.check_seconds(team, [TargetFactory()], 20, at=NOW)
    assert refusal is not None
    assert refusal.retry_at is None
    assert "send at most 10 files at a time" in refusal.sentence


@pytest.mark.parametrize(
    ("setting", "target", "team", "limit"),
    [(1_000, None, None, 1_000), (1_000, 50, None, 50), (1_000, 50, 70, 70), (0, None, None, None), (9, None, 0, None)],
)
def test_the_teams_limit_goes_before_the_targets_before_the_sites(
    limits: Any, setting: int, target: int | None, team: int | None, limit: float | None
) -> None:
    limits.QUOTA_SECONDS = setting
    place = TargetFactory(quota_seconds=target)
    assert quotas.limit_of(TeamFactory(quota_seconds=team), place) == limit


def test_a_grant_is_in_the_audit_trail() -> None:
    team, target = TeamFactory(), TargetFactory()
    used(team, 900, NOW - DAY)
    quotas.grant(team, target, 500, UserFactory(), reason="paper deadline")
    assert quotas.usage(team, target, at=datetime.now(UTC)).used >= 0
    event = AuditEvent.objects.get(action="grant quota")
    assert (event.reason, event.detail) == ("paper deadline", {"target": "cpu-gloo", "seconds": 500})


# Single-shot runs -----------------------------------------------------------------------------------------------------


def single_shot(model: Any, at: datetime) -> None:
    EvaluationFactory(run__model=model, run__created_at=at)


def test_single_shot_runs_of_a_model_are_limited_by_the_month() -> None:
    model = RankedModelFactory(name="Model One")
    single_shot(model, NOW - 20 * DAY)  # November
    single_shot(model, NOW - DAY)
    assert quotas.check_single_shot(model, Track.SINGLE_SHOT, at=NOW) is None
    single_shot(model, NOW)
    refusal = quotas.check_single_shot(model, Track.SINGLE_SHOT, at=NOW)
    assert refusal is not None
    assert refusal.retry_at == datetime(2027, 1, 1, tzinfo=UTC)
    assert refusal.sentence.startswith("Model One has sent 2 single-shot runs this month; the limit is 2")
    assert quotas.check_single_shot(model, Track.AGENTIC, at=NOW) is None
    assert quotas.check_single_shot(RankedModelFactory(), Track.SINGLE_SHOT, at=NOW) is None
    model.single_shot_runs = 3
    model.save()
    assert quotas.check_single_shot(model, Track.SINGLE_SHOT, at=NOW) is None


def test_withdrawing_a_single_shot_run_gives_no_other_try() -> None:
    upload, declaration, who = sent()
    declaration = replace(declaration, track=Track.SINGLE_SHOT)
    run = confirm(upload, declaration, **who)
    single_shot(declaration.model, datetime.now(UTC))
    lifecycle.withdraw_run(run, who["user"])
    again = preview(
        who["user"], [Sent(upload.findings[0]["file_name"], BytesIO(b"def solution(x): return 1"))], suite=who["suite"]
    )
    with pytest.raises(LimitReached, match="single-shot"):
        confirm(again, declaration, **who)
