"""The commands by which an operator makes the first admin and registers workers."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.test import Client
from django.urls import reverse

from leaderboard.models import Target, User, Worker
from problems.models import Problem

pytestmark = pytest.mark.django_db


def run(*arguments: str) -> str:
    output = StringIO()
    call_command(*arguments, stdout=output)
    return output.getvalue().strip()


@pytest.fixture
def target() -> Target:
    return Target.objects.create(name="cpu-gloo", title="CPU", device="cpu", world_size=4, precision="fp32", queue="q")


def test_the_first_admin_signs_in_with_the_printed_password_and_is_made_once(client: Client) -> None:
    words = run("first_admin").split()
    name, password = words[words.index("user") + 1].rstrip(","), words[words.index("password") + 1]
    answer = client.post(reverse("account_login"), {"login": name, "password": password})
    assert answer.status_code == 302
    assert client.get(reverse("admin:index")).status_code == 200
    assert run("first_admin") == ""
    assert User.objects.filter(is_superuser=True).count() == 1


def test_a_visitor_who_took_the_name_admin_does_not_become_one() -> None:
    User.objects.create_user("admin", "visitor@example.org", "a-password-of-a-visitor")
    assert "user admin-" in run("first_admin")
    assert not User.objects.get(username="admin").is_superuser


def test_the_printed_key_is_that_of_the_worker(target: Target) -> None:
    line = run("register_worker", "gpu-1", "--target", "cpu-gloo")
    assert line.endswith(f"PKB_WORKER_NAME=gpu-1\nPKB_WORKER_KEY={Worker.objects.get(name='gpu-1').key}")


def test_a_known_worker_keeps_its_key_unless_a_new_one_is_asked_for(target: Target) -> None:
    run("register_worker", "gpu-1", "--target", "cpu-gloo")
    key = Worker.objects.get().key
    with pytest.raises(CommandError, match="--new-key"):
        run("register_worker", "gpu-1", "--target", "cpu-gloo")
    assert Worker.objects.get().key == key
    run("register_worker", "gpu-1", "--target", "cpu-gloo", "--new-key")
    assert Worker.objects.get().key != key


def test_a_given_key_may_be_given_again(target: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_WORKER_KEY", "ab" * 32)
    for _ in range(2):
        assert run("register_worker", "local", "--target", "cpu-gloo", "--given-key") == ""
    assert Worker.objects.get().key == "ab" * 32


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("gpu-1", "--target", "h900"), "no target 'h900'"),
        (("gpu 1;", "--target", "cpu-gloo"), "valid value"),
        (("gpu-1", "--target", "cpu-gloo", "--given-key"), "64 hexadecimal digits"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(
    target: Target, arguments: tuple[str, ...], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PKB_WORKER_KEY", "short")
    with pytest.raises(CommandError, match=sentence):
        run("register_worker", *arguments)
    assert not Worker.objects.exists()


def test_preparing_twice_changes_nothing_the_second_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PKB_WORKER_KEY", "ab" * 32)
    arguments = ("prepare", "--skip-static", "--worker", "local", "--target", "cpu-gloo")
    assert "one-time password" in run(*arguments)
    before = (Target.objects.count(), Problem.objects.count(), Worker.objects.count(), User.objects.count())
    assert min(before) > 0
    assert "one-time password" not in run(*arguments)
    assert before == (Target.objects.count(), Problem.objects.count(), Worker.objects.count(), User.objects.count())
