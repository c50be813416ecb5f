"""Settings are read strictly, health says the truth, every page carries its policy, logs carry their ids."""

from __future__ import annotations

import io
import json
import logging
from pathlib import Path
from typing import Any

import pytest
import redis
import structlog
from django.db import DatabaseError
from django.test import Client

from evaluator.logs import logging_config
from evaluator.worker.settings import SettingError as WorkerSettingError
from evaluator.worker.settings import WorkerSettings
from pkbsite import environment, health
from pkbsite.environment import SETTINGS, Environment, SettingError
from pkbsite.processes import PROCESSES

KEY = "k3y-" * 12


def env(**variables: str) -> Environment:
    return Environment(variables, Path("/srv/pkb"))


@pytest.mark.parametrize("key", ["", "short", "a" * 64, "changeme" * 3])
def test_production_refuses_a_missing_or_weak_secret_key(key: str) -> None:
    with pytest.raises(SettingError, match=r"SECRET_KEY has \d+ characters; it must be a random text of at least 32"):
        env(SECRET_KEY=key).secret_key(debug=False)


def test_secret_key_is_taken_and_only_debug_needs_none() -> None:
    assert env(SECRET_KEY=KEY * 2 + "abcdefg").secret_key(debug=False).startswith("k3y")
    assert env().secret_key(debug=True)


def test_values_are_read_strictly() -> None:
    assert env(ALLOWED_HOSTS=" a.org, b.org ,").list("ALLOWED_HOSTS") == ["a.org", "b.org"]
    assert env(PKB_DATA="x").path("PKB_DATA") == Path("/srv/pkb/x")
    assert env(DEBUG="Yes").flag("DEBUG")
    assert not env().flag("DEBUG")
    for name, value, read in [("DEBUG", "perhaps", "flag"), ("PKB_LEASE_SECONDS", "a minute", "number")]:
        with pytest.raises(SettingError, match=name):
            getattr(env(**{name: value}), read)(name)


def test_no_default_is_malformed() -> None:
    for setting in SETTINGS:
        if setting.kind in {"flag", "number", "list", "path", "text"}:
            getattr(env(), setting.kind)(setting.name)
        assert setting.sentence.endswith(".")


def test_database_address(tmp_path: Path) -> None:
    sqlite = environment.database("", tmp_path / "new", 60)
    assert sqlite["NAME"] == tmp_path / "new" / "pkbsite.sqlite3"
    assert sqlite["OPTIONS"]["transaction_mode"] == "IMMEDIATE"
    postgres = environment.database("postgresql://u:p%40ss@db:5433/pkb?sslmode=require", tmp_path, 60)
    assert {k: postgres[k] for k in ("NAME", "USER", "PASSWORD", "HOST", "PORT")} == {
        "NAME": "pkb",
        "USER": "u",
        "PASSWORD": "p@ss",
        "HOST": "db",
        "PORT": 5433,
    }
    assert postgres["OPTIONS"] == {"sslmode": "require"}
    assert environment.database("postgresql:///pkb?host=/run/pg", tmp_path, 0)["HOST"] == "/run/pg"
    with pytest.raises(SettingError, match="begins with 'mysql'"):
        environment.database("mysql://x/y", tmp_path, 0)


def test_mail_password_never_goes_in_the_clear() -> None:
    plain = environment.email("smtp://user:secret@mail.example.org")
    assert (plain["EMAIL_USE_TLS"], plain["EMAIL_USE_SSL"], plain["EMAIL_PORT"]) == (True, False, 587)
    assert environment.email("smtps://mail.example.org")["EMAIL_USE_SSL"]
    assert environment.email("console:")["EMAIL_BACKEND"].endswith("console.EmailBackend")
    with pytest.raises(SettingError, match="EMAIL_URL"):
        environment.email("mail.example.org")


def test_worker_names_what_is_missing_and_shows_no_key() -> None:
    with pytest.raises(WorkerSettingError) as caught:
        WorkerSettings.read({"PKB_TARGET": "cpu-gloo", "PKB_WORKER_KEY": "s3cret"})
    assert "PKB_WORKER_NAME: Field required" in str(caught.value)
    assert "PKB_WORKER_KEY: String should match" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_gpu_hosts_get_neither_database_nor_secret_key() -> None:
    for process in PROCESSES:
        if process.role == "worker":
            assert not {"SECRET_KEY", "DATABASE_URL", "PKB_DATA"} & set(process.environment)
    known = {setting.name for setting in SETTINGS} | {f.alias for f in WorkerSettings.model_fields.values()}
    assert {name for process in PROCESSES for name in process.environment} <= known


@pytest.mark.django_db
def test_ready_when_database_and_broker_answer(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis.Redis, "ping", lambda self: True)
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"database": "ok", "migrations": "ok", "broker": "ok"})


@pytest.mark.django_db
def test_not_ready_without_broker_but_alive(client: Client, settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:1/0"
    response = client.get("/readyz")
    assert response.status_code == 503
    assert response.json()["broker"].startswith("the broker does not answer")
    assert client.get("/healthz").status_code == 200


@pytest.mark.django_db
def test_not_ready_with_missing_migrations_or_database(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health.MigrationExecutor, "migration_plan", lambda self, targets: [object()] * 3)
    assert health._migrations() == "3 migrations are missing; run: python manage.py migrate"

    def fail() -> None:
        raise DatabaseError("no route")

    monkeypatch.setattr(health.connection, "cursor", fail)
    assert health._database() == "the database does not answer; see the log"


def test_policy_allows_no_inline_script_and_no_other_origin(client: Client) -> None:
    policy = client.get("/healthz")["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


def test_log_lines_are_json_with_bound_ids(request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: logging_config(level="INFO", style="json"))
    stream = io.StringIO()
    logging_config(level="INFO", style="json")
    handler = logging.getLogger().handlers[0]
    assert isinstance(handler, logging.StreamHandler)
    handler.setStream(stream)
    with structlog.contextvars.bound_contextvars(attempt_id="a1"):
        structlog.get_logger("leaderboard").info("verdict recorded", run_id="r1")
        logging.getLogger("django").warning("foreign %s", "line")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["event"], line["attempt_id"], line["level"]) for line in lines] == [
        ("verdict recorded", "a1", "info"),
        ("foreign line", "a1", "warning"),
    ]
    assert lines[0]["run_id"] == "r1"
