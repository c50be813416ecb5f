"""The maintainers' rooms: every one opens, records cannot be edited, actions go through the verbs with their reason."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.urls import reverse

from leaderboard.models import AuditEvent, QuotaEntry, Run, RunState, Team, Worker, WorkerState
from tests.factories import TargetFactory, TeamFactory, WorkerFactory
from tests.pages.site import Site

OURS = [model for model in admin.site._registry if model._meta.app_label in ("leaderboard", "problems")]
PARTS = {"membership", "typescore"}  # shown inside team and score


def test_every_model_has_its_room() -> None:
    from django.apps import apps

    every = {
        model
        for label in ("leaderboard", "problems")
        for model in apps.get_app_config(label).get_models()
        if not model.__name__.startswith("Historical") and model._meta.model_name not in PARTS
    }
    assert every == set(OURS)


@pytest.mark.parametrize("model", OURS, ids=lambda model: model._meta.model_name)
def test_every_room_opens_and_can_be_searched(site: Site, model: type) -> None:
    WorkerFactory()
    client = site.client("maintainer")
    prefix = f"admin:{model._meta.app_label}_{model._meta.model_name}"  # type: ignore[attr-defined]
    assert client.get(reverse(f"{prefix}_changelist"), {"q": "x"}).status_code == 200
    if (row := model._default_manager.first()) is not None:  # type: ignore[attr-defined]
        assert client.get(reverse(f"{prefix}_change", args=[row.pk])).status_code == 200


def test_disqualifying_goes_through_the_verb_and_wants_a_reason(site: Site) -> None:
    client = site.client("maintainer")
    address = reverse("admin:leaderboard_run_changelist")
    form = {"action": "disqualify", "_selected_action": [site.run.pk], "reason": ""}
    assert "Give a reason" in client.post(address, form, follow=True).content.decode()
    assert Run.objects.get().state == RunState.ACTIVE
    client.post(address, {**form, "reason": "copied from another team"})
    run = Run.objects.get()
    assert (run.state, run.state_reason) == (RunState.DISQUALIFIED, "copied from another team")
    event = AuditEvent.objects.filter(action="disqualify run").get()
    assert (event.actor, event.reason) == (site.maintainer, "copied from another team")
    client.post(address, {**form, "action": "reinstate", "reason": "an error"})
    assert Run.objects.get().state == RunState.ACTIVE


def test_workers_are_drained_with_a_trail(site: Site) -> None:
    worker = WorkerFactory()
    form = {"action": "drain", "_selected_action": [worker.pk], "reason": "new driver"}
    site.client("maintainer").post(reverse("admin:leaderboard_worker_changelist"), form)
    assert Worker.objects.get(pk=worker.pk).state == WorkerState.DRAINED
    assert AuditEvent.objects.filter(action="set worker drained", reason="new driver").exists()


@pytest.mark.parametrize("name", ["run", "verdict", "evaluation", "auditevent"])
def test_records_cannot_be_edited_added_or_deleted(site: Site, name: str) -> None:
    client = site.client("maintainer")
    AuditEvent.objects.create(action="a", actor_name="b", subject_type="c", subject_id="d")
    row = admin.site._registry[next(m for m in OURS if m._meta.model_name == name)].model._default_manager.first()
    assert row is not None
    assert client.get(reverse(f"admin:leaderboard_{name}_add")).status_code == 403
    assert client.post(reverse(f"admin:leaderboard_{name}_change", args=[row.pk]), {}).status_code == 403
    assert client.post(reverse(f"admin:leaderboard_{name}_delete", args=[row.pk]), {"post": "yes"}).status_code == 403


def test_edits_leave_history_and_trail(site: Site) -> None:
    team = TeamFactory(name="Old name", slug="old")
    form = {
        "name": "New name", "slug": "old", "link": "https://new.example", "memberships-TOTAL_FORMS": "0",
        "memberships-INITIAL_FORMS": "0",
    }  # fmt: skip
    site.client("maintainer").post(reverse("admin:leaderboard_team_change", args=[team.pk]), form)
    assert Team.objects.get(pk=team.pk).name == "New name"
    assert AuditEvent.objects.get(action="edit team").detail == {"fields": ["link", "name"]}
    assert [record.name for record in team.history.all()] == ["New name", "Old name"]


def test_a_grant_is_entered_as_seconds_and_kept_as_a_negative_charge(site: Site) -> None:
    client, target = site.client("maintainer"), TargetFactory()
    address = reverse("admin:leaderboard_quotaentry_add")
    form = {"team": site.team.pk, "target": target.pk, "seconds": "5000", "reason": "camera-ready deadline"}
    assert client.get(address).status_code == 200
    assert client.post(address, {**form, "seconds": "-5"}).status_code == 200, "the form comes back"
    assert client.post(address, form).status_code == 302
    entry = QuotaEntry.objects.get(team=site.team)
    assert (entry.seconds, entry.reason) == (-5_000, "camera-ready deadline")
    assert AuditEvent.objects.get(action="grant quota").actor == site.maintainer
    change = reverse("admin:leaderboard_quotaentry_change", args=[entry.pk])
    assert client.post(change, {**form, "seconds": "9"}).status_code == 403, "what is charged or granted stays"
