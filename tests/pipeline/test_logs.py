"""One file's way can be read off the logs of all processes: by its run, its submission and its attempt."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from leaderboard import membership
from leaderboard.models import Attempt, Run, Upload
from tests.factories import UserFactory
from tests.pipeline.conftest import Site, host_suite, wait_for, wait_for_verdicts

pytestmark = pytest.mark.django_db(transaction=True)


def submit(user: Any) -> Run:
    """Upload one file and confirm it, as a browser does."""
    team = membership.found_team(user, name="Loggers")
    model = membership.enter_model(user, team, name="Logger", organisation="Example", open_weights=True)
    client = Client()
    client.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    file = SimpleUploadedFile("1.py", b"# judge: correct\ndef solution(tensor):\n    return tensor\n")
    client.post(reverse("submit"), {"files": [file], "end": "1"})
    declaration = {
        "model": model.pk,
        "track": "single-shot",
        "backend": "pytorch",
        "precision": "fp32",
        "targets": ["cpu-gloo"],
        "provenance": "self-reported",
        "visibility": "public",
        "source_visibility": "public",
        "licence": "MIT",
        "terms": "on",
    }
    response = client.post(reverse("preview", args=[Upload.objects.get().pk]), declaration)
    assert response.status_code == 302, response.content.decode()
    return Run.objects.get()


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def test_one_attempt_is_found_in_every_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    host_suite()
    site.start("results", "evaluation")
    with caplog.at_level(logging.INFO):
        run = submit(UserFactory())
    wait_for_verdicts(site, run)
    wait_for(lambda: "verdict recorded" in site.log("results"), "the last line", site)
    attempt = Attempt.objects.select_related("submission").get()
    ids = {
        "run_id": run.public_id,
        "submission_id": attempt.submission.public_id,
        "attempt_id": str(attempt.pk),
    }
    logs = {
        "web": [record.msg for record in caplog.records if isinstance(record.msg, dict)],
        "evaluation": lines(site.log("evaluation")),
        "results": lines(site.log("results")),
    }
    events = {
        process: [line["event"] for line in found if ids.items() <= line.items()] for process, found in logs.items()
    }
    assert events == {
        "web": ["attempt sent"],
        "evaluation": ["attempt claimed", "report handed over"],
        "results": ["attempt leased", "attempt finished", "verdict recorded"],
    }
    [sent] = [line for line in logs["web"] if line["event"] == "attempt sent"]
    assert sent["path"].startswith("/submit/")  # the request that caused it
    assert sent["request_id"]
    recorded = next(line for line in logs["results"] if line["event"] == "verdict recorded")
    assert (recorded["worker"], recorded["kind"]) == (site.worker.name, "report")
    for found in logs.values():
        assert site.worker.key not in json.dumps(found, default=str)


def test_nothing_secret_is_in_the_hosts_log(site: Site) -> None:
    """The password of the broker is part of an address that Celery prints when it connects."""
    from pkbsite import broker_users

    site.start("evaluation")
    assert "Connected to" in site.log("evaluation")
    assert broker_users.password(site.worker.key) not in site.log("evaluation")
    assert site.worker.key not in site.log("evaluation")
