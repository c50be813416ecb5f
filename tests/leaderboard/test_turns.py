"""Teams take turns: nobody waits behind another team's queue, however long it is."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from django.utils import timezone
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from evaluator.contract import Claim
from leaderboard import dispatch, lifecycle, turns
from leaderboard.models import Attempt, AttemptState, Campaign, Evaluation, Submission, Target, Team, Worker
from tests.factories import (
    EvaluationFactory,
    ProblemFactory,
    RankedModelFactory,
    RunFactory,
    SourceFileFactory,
    SubmissionFactory,
    SuiteFactory,
    TargetFactory,
    TeamFactory,
    UserFactory,
    WorkerFactory,
)
from tests.leaderboard.conftest import FakeBroker

pytestmark = pytest.mark.django_db
NOW = timezone.now()


def send(team: Team, files: int, *, target: Target | None = None, campaign: Campaign | None = None) -> list[Attempt]:
    """A run of the team with so many files, queued."""
    run = RunFactory(model=RankedModelFactory(team=team))
    evaluation = EvaluationFactory(
        run=run, suite=SuiteFactory(size=0), target=target or TargetFactory(), campaign=campaign
    )
    problem, source = ProblemFactory(number=1), SourceFileFactory(text="def solution(x): return x\n")
    submissions = Submission.objects.bulk_create(
        SubmissionFactory.build(run=run, problem=problem, source=source, sample=n) for n in range(files)
    )
    return lifecycle.queue_attempts(evaluation, [submission.pk for submission in submissions])


def serve(files: int) -> list[str]:
    """Names of the teams of the next attempts that workers get, one after another, as the window moves on."""
    served: list[str] = []
    while len(served) < files:
        turns.choose(TargetFactory().pk)
        in_broker = Attempt.objects.filter(state=AttemptState.QUEUED, sent_at__isnull=False)
        attempt = (
            in_broker.order_by("sent_at", "in_campaign", *turns.ORDER).select_related("evaluation__run__team").first()
        )
        if attempt is None:
            break
        Attempt.objects.filter(pk=attempt.pk).update(state=AttemptState.RECORDED)
        served.append(attempt.evaluation.run.team.name)
    return served


def test_a_single_file_does_not_wait_behind_a_long_queue() -> None:
    send(TeamFactory(name="big"), 300)
    assert serve(10) == ["big"] * 10
    send(TeamFactory(name="small"), 1)
    assert "small" in serve(turns.SMALLEST_WINDOW + 2), "what is in the broker already and one file of the round"


def test_teams_get_one_file_each_in_every_round() -> None:
    for name, files in (("a", 30), ("b", 10), ("c", 20)):
        send(TeamFactory(name=name), files)
    order = serve(60)
    for start in range(0, 30, 3):
        assert sorted(order[start : start + 3]) == ["a", "b", "c"]
    assert Counter(order[30:50]) == {"a": 10, "c": 10}
    assert order[50:] == ["a"] * 10


def test_many_runs_of_a_team_are_one_queue() -> None:
    """Splitting a suite into runs gains nothing, apart from the few files of practice."""
    splitter, other = TeamFactory(name="splitter"), TeamFactory(name="other")
    for _ in range(10):
        send(splitter, 5)
    send(other, 10)
    assert Counter(serve(20)) == {"splitter": 10, "other": 10}


def test_a_small_run_overtakes_the_own_queue_up_to_a_limit() -> None:
    team = TeamFactory(name="a")
    long = send(team, 50)
    practice = send(team, 3)
    assert all(attempt.is_practice for attempt in practice)
    assert {attempt.turn for attempt in practice} == {long[0].turn}
    beyond = send(team, 2)  # three of the four files are taken
    assert not any(attempt.is_practice for attempt in beyond)
    assert [attempt.turn for attempt in beyond] == [long[-1].turn + 1, long[-1].turn + 2]


def test_what_failed_for_our_reasons_goes_to_the_front(messages: FakeBroker) -> None:
    first, *_, last = send(TeamFactory(), 30)
    worker = WorkerFactory()
    Attempt.objects.filter(pk=first.pk).update(sent_at=NOW)
    lifecycle.lease_attempt(Claim(attempt_id=first.pk, attempt_number=1), worker, at=NOW)
    lifecycle.expire_lease(first.pk, at=NOW + timedelta(hours=1))
    again = Attempt.objects.get(submission=first.submission_id, number=2)
    assert again.turn < last.turn
    assert again.turn == turns.front_of(again.evaluation)


def test_targets_do_not_wait_for_each_other() -> None:
    send(TeamFactory(name="a"), 20)
    elsewhere = send(TeamFactory(name="b"), 1, target=TargetFactory(name="h100x4"))
    assert turns.choose(elsewhere[0].target_id) == [elsewhere[0].pk]


def test_the_window_follows_the_workers_and_fills_when_half_empty() -> None:
    target = TargetFactory()
    send(TeamFactory(), 40)
    assert len(turns.choose(target.pk)) == turns.SMALLEST_WINDOW
    assert turns.choose(target.pk) == []
    WorkerFactory.create_batch(5, last_seen_at=timezone.now())
    assert len(turns.choose(target.pk)) == 10 - turns.SMALLEST_WINDOW


def campaign(target: Target) -> Campaign:
    return Campaign.objects.create(
        name="Suite 1.1",
        reason="new tolerances",
        target=target,
        suite=SuiteFactory(size=0),
        protocol_version="1.0",
        created_by=UserFactory(),
    )


def test_a_re_evaluation_leaves_a_worker_free() -> None:
    target = TargetFactory()
    workers = WorkerFactory.create_batch(3, last_seen_at=timezone.now())
    send(TeamFactory(name="campaign"), 50, campaign=campaign(target))
    sent = turns.choose(target.pk)
    assert len(sent) == 2, "three workers, one of which is kept free"
    for attempt, worker in zip(sent, workers, strict=False):
        lifecycle.lease_attempt(Claim(attempt_id=attempt, attempt_number=1), worker)
    assert turns.choose(target.pk) == []
    (file,) = send(TeamFactory(name="team"), 1)
    assert turns.choose(target.pk) == [file.pk]


def test_a_re_evaluation_waits_for_everybody_else_on_a_single_worker() -> None:
    target = TargetFactory()
    WorkerFactory(last_seen_at=timezone.now())
    send(TeamFactory(name="campaign"), 5, campaign=campaign(target))
    send(TeamFactory(name="team"), 5)
    assert serve(10) == ["team"] * 5 + ["campaign"] * 5


def test_before_counts_what_is_sent_sooner() -> None:
    big, small = TeamFactory(), TeamFactory()
    send(big, 20)
    (file,) = send(small, 1)
    dispatch.refill(file.target_id)
    order = list(Attempt.objects.filter(state=AttemptState.QUEUED, sent_at=None).order_by(*turns.ORDER))
    file.refresh_from_db()
    expected = order.index(file) + turns.SMALLEST_WINDOW if file.sent_at is None else 1
    assert turns.before(file).count() == expected


def test_messages_that_could_not_be_sent_are_chosen_again(messages: FakeBroker) -> None:
    attempts = send(TeamFactory(), 10)
    messages.up = False
    assert dispatch.refill(attempts[0].target_id) == 0
    assert not Attempt.objects.exclude(sent_at=None).exists()
    messages.up = True
    assert dispatch.refill(attempts[0].target_id) == turns.SMALLEST_WINDOW
    assert [job.attempt_id for _, job in messages.jobs] == [a.pk for a in attempts[: turns.SMALLEST_WINDOW]]


Step = tuple[str, int]
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from("abc"), st.integers(min_value=5, max_value=8)),
        st.tuples(st.just("serve"), st.integers(min_value=1, max_value=8)),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=steps)
def test_no_team_falls_behind_another_that_has_waited_as_long(steps: list[Step]) -> None:
    """While two teams both wait, neither gets more than the window and one file more than the other."""
    Attempt.objects.all().delete()
    Evaluation.objects.all().delete()
    Worker.objects.all().delete()
    teams: dict[str, Team] = {}
    waiting: Counter[str] = Counter()
    since: dict[tuple[str, str], Counter[str]] = {}
    for name, number in [*steps, ("serve", 100)]:
        if name != "serve":
            team = teams.setdefault(name, TeamFactory())
            send(team, number)
            waiting[name] += number
            continue
        names = {team.name: short for short, team in teams.items()}
        for served in (names[full] for full in serve(number)):
            waiting[served] -= 1
            both = {pair for pair in ((x, y) for x in teams for y in teams if x < y) if all(waiting[t] for t in pair)}
            since = {pair: since.get(pair, Counter()) for pair in both}
            for pair, counts in since.items():
                if served in pair:
                    counts[served] += 1
                    assert abs(counts[pair[0]] - counts[pair[1]]) <= turns.SMALLEST_WINDOW + 1
    assert not +waiting, "everything was served in the end"
