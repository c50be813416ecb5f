"""Confirming an upload makes one run with everything that belongs to it, or nothing."""

from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from leaderboard.intake import Declaration, IntakeError, Sent, confirm, preview
from leaderboard.models import Attempt, Evaluation, Run, Submission, Target, Upload, UploadState, User
from problems.models import Suite
from tests.factories import MembershipFactory, RankedModelFactory, SuiteFactory, TargetFactory, UserFactory
from tests.leaderboard.conftest import FakeBroker

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Suite:
    return SuiteFactory(size=3)


@pytest.fixture
def user() -> User:
    return UserFactory()


@pytest.fixture
def declaration(user: User) -> Declaration:
    model = RankedModelFactory()
    MembershipFactory(team=model.team, user=user)
    return Declaration(
        team=model.team,
        model=model,
        track="single-shot",
        backend="pytorch",
        precision="fp32",
        targets=[TargetFactory()],
        licence="MIT",
    )


def upload_of(user: User, suite: Suite, *names: str) -> Upload:
    files = [Sent(name, io.BytesIO(f"def solution(x): return {i}".encode())) for i, name in enumerate(names)]
    return preview(user, files, suite=suite)


def numbers(suite: Suite) -> list[int]:
    return list(suite.problem_versions.values_list("problem__number", flat=True))


def test_confirm_makes_run_submissions_evaluation_and_sends_the_attempts(
    user: User,
    suite: Suite,
    declaration: Declaration,
    messages: FakeBroker,
    django_capture_on_commit_callbacks: Any,
) -> None:
    upload = upload_of(user, suite, *[f"{n}.py" for n in numbers(suite)], "notes.txt")
    with django_capture_on_commit_callbacks(execute=True):
        run = confirm(upload, declaration, user=user, suite=suite)
    assert run.submissions.count() == 3  # the text file stays a finding
    assert [job.problem_id for _, job in messages.jobs] == sorted(numbers(suite))
    queue, job = messages.jobs[0]
    assert queue == "eval.cpu-gloo"
    assert job.problem_digest == suite.problem_versions.get(problem__number=job.problem_id).digest
    assert job.source == Submission.objects.get(problem__number=job.problem_id).source.text
    assert not Attempt.objects.filter(sent_at=None).exists()


def test_files_are_uploaded_once_and_evaluated_on_several_targets(
    user: User, suite: Suite, declaration: Declaration
) -> None:
    upload = upload_of(user, suite, f"{numbers(suite)[0]}.py")
    targets = [*declaration.targets, TargetFactory(name="h100x4", precisions=["bf16", "fp32"])]
    run = confirm(upload, replace(declaration, targets=targets), user=user, suite=suite)
    assert run.submissions.count() == 1
    assert Evaluation.objects.count() == Attempt.objects.count() == 2


def test_confirming_twice_makes_one_run(user: User, suite: Suite, declaration: Declaration) -> None:
    upload = upload_of(user, suite, f"{numbers(suite)[0]}.py")
    first = confirm(upload, declaration, user=user, suite=suite)
    assert confirm(upload, declaration, user=user, suite=suite) == first
    assert Run.objects.count() == Submission.objects.count() == Attempt.objects.count() == 1


def test_broker_that_is_down_loses_nothing(
    user: User,
    suite: Suite,
    declaration: Declaration,
    messages: FakeBroker,
    django_capture_on_commit_callbacks: Any,
) -> None:
    messages.up = False
    upload = upload_of(user, suite, f"{numbers(suite)[0]}.py")
    with django_capture_on_commit_callbacks(execute=True):
        run = confirm(upload, declaration, user=user, suite=suite)
    attempt = Attempt.objects.get(evaluation__run=run)
    assert (attempt.state, attempt.sent_at) == ("queued", None)


def closed(declaration: Declaration) -> list[Target]:
    return [TargetFactory(name="b200x8", is_open=False)]


@pytest.mark.parametrize(
    ("code", "change"),
    [
        ("not_member", lambda d: {"team": RankedModelFactory().team}),
        ("model_of_other_team", lambda d: {"model": RankedModelFactory()}),
        ("no_target", lambda d: {"targets": []}),
        ("target_closed", lambda d: {"targets": closed(d)}),
        ("precision_not_offered", lambda d: {"precision": "fp16"}),
    ],
)
def test_declaration_that_does_not_fit_stores_nothing(
    user: User, suite: Suite, declaration: Declaration, code: str, change: Any
) -> None:
    upload = upload_of(user, suite, f"{numbers(suite)[0]}.py")
    with pytest.raises(IntakeError) as caught:
        confirm(upload, replace(declaration, **change(declaration)), user=user, suite=suite)
    assert caught.value.code == code
    assert str(caught.value).endswith(".")
    upload.refresh_from_db()
    assert upload.state == UploadState.PREVIEWED
    assert not Run.objects.exists()


def test_upload_of_somebody_else_is_refused(user: User, suite: Suite, declaration: Declaration) -> None:
    upload = upload_of(UserFactory(), suite, f"{numbers(suite)[0]}.py")
    with pytest.raises(IntakeError, match="not yours"):
        confirm(upload, declaration, user=user, suite=suite)


def test_upload_without_accepted_files_cannot_be_confirmed(user: User, suite: Suite, declaration: Declaration) -> None:
    with pytest.raises(IntakeError, match="No file of this upload was accepted"):
        confirm(upload_of(user, suite, "notes.txt"), declaration, user=user, suite=suite)


@pytest.mark.parametrize(
    ("name", "code"), [("sample_1/", "samples_in_other_track"), ("step_1/", "steps_in_other_track")]
)
def test_samples_and_steps_need_their_track(
    user: User, suite: Suite, declaration: Declaration, name: str, code: str
) -> None:
    upload = upload_of(user, suite, f"{name}{numbers(suite)[0]}.py")
    with pytest.raises(IntakeError) as caught:
        confirm(upload, declaration, user=user, suite=suite)
    assert caught.value.code == code


def test_queries_do_not_grow_with_files(user: User, declaration: Declaration) -> None:
    counts = []
    for size in (1, 60):
        suite = SuiteFactory(size=size)
        upload = upload_of(user, suite, *[f"{n}.py" for n in numbers(suite)])
        with CaptureQueriesContext(connection) as queries:
            confirm(upload, declaration, user=user, suite=suite)
        counts.append(len(queries))
    assert counts[0] <= 20
    assert counts[1] <= counts[0] + 2  # SQLite splits an insert of many rows
