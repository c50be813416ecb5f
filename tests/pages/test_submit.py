"""From files to a run through the pages, without JavaScript."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.http import parse_http_date

from leaderboard import broker, dispatch
from leaderboard.forms.submit import DeclarationForm
from leaderboard.models import AttemptState, QuotaEntry, RankedModel, Run, Target, Team, Upload, UploadState
from tests.factories import AttemptFactory, TargetFactory
from tests.pages.site import Site

GOOD = "def solution(x):\n    return x\n"


@pytest.fixture(autouse=True)
def no_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queues are tested with the pipeline; here it counts what is stored."""
    monkeypatch.setattr(dispatch, "_publish", lambda attempt, digest: False)
    monkeypatch.setattr(broker, "mark_closed", lambda ids: None)


def upload(client: Client, *names: str) -> Upload:
    files = [SimpleUploadedFile(name, f"{GOOD}# {name}\n".encode()) for name in names]
    client.post(reverse("submit"), {"files": files, "end": "1"})
    return Upload.objects.latest("created_at")


def declaration(**changes: object) -> dict[str, object]:
    return {
        "model": RankedModel.objects.get(slug="model-one").pk,
        "track": "single-shot",
        "backend": "pytorch",
        "precision": "fp32",
        "targets": ["cpu-gloo"],
        "provenance": "self-reported",
        "visibility": "public",
        "source_visibility": "public",
        "licence": "MIT",
        "terms": "on",
        **changes,
    }


def test_files_preview_confirm_run(site: Site) -> None:
    client = site.client("owner")
    sent = upload(client, "1.py", "3_problem_3_pytorch.py", "notes.txt")
    page = client.get(reverse("preview", args=[sent.pk])).content.decode()
    assert "2 files can be judged, 1 cannot" in page
    assert "2 of the suite's problems stay unanswered" in page.replace("&#x27;", "'")
    assert not Run.objects.filter(upload=sent).exists(), "nothing may be judged before the confirmation"

    response = client.post(reverse("preview", args=[sent.pk]), declaration())
    run = Run.objects.get(upload=sent)
    assert response["Location"] == reverse("run", args=[run.public_id])
    assert sorted(run.submissions.values_list("problem__number", flat=True)) == [1, 3]
    assert set(run.evaluations.get().attempts.values_list("state", flat=True)) == {AttemptState.QUEUED}
    live = client.get(response["Location"]).content.decode()
    assert "0 of 2 files have a verdict" in live
    assert 'hx-trigger="every 2s"' in live


def test_confirming_twice_makes_one_run(site: Site) -> None:
    client = site.client("owner")
    sent = upload(client, "1.py")
    addresses = {client.post(reverse("preview", args=[sent.pk]), declaration())["Location"] for _ in range(2)}
    assert len(addresses) == 1
    assert Run.objects.filter(upload=sent).count() == 1


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"terms": ""}, "Without this consent the files cannot be judged."),
        ({"targets": []}, "This field is required."),
        ({"visibility": "embargoed"}, "Say from when the results are public."),
        ({"visibility": "embargoed", "embargo_until": "2020-01-01T00:00"}, "This moment has passed"),
        ({"precision": "fp16"}, "The target cpu-gloo does not evaluate fp16; it offers fp32, bf16."),
        ({"cost_usd": "-1"}, "greater than or equal to 0"),
    ],
)
def test_a_declaration_that_does_not_hold_loses_nothing(site: Site, changes: dict[str, object], sentence: str) -> None:
    client = site.client("owner")
    sent = upload(client, "1.py")
    response = client.post(reverse("preview", args=[sent.pk]), declaration(provenance_note="kept", **changes))
    assert response.status_code == 422
    page = response.content.decode()
    assert sentence in page
    assert "kept" in page, "what was filled in must still be there"
    sent.refresh_from_db()
    assert sent.state == UploadState.PREVIEWED
    assert not Run.objects.filter(upload=sent).exists()


def test_a_model_of_another_team_cannot_be_chosen(site: Site) -> None:
    client = site.client("stranger")
    client.post(reverse("team-create"), {"name": "Strangers"})
    client.post(reverse("model-create", args=[Team.objects.get(name="Strangers").slug]), {"name": "Mine"})
    sent = upload(client, "1.py")
    response = client.post(reverse("preview", args=[sent.pk]), declaration())
    assert response.status_code == 422
    assert not Run.objects.filter(upload=sent).exists()


def test_a_newcomer_is_led_to_team_and_model_and_back(site: Site) -> None:
    client = site.client("stranger")
    sent = upload(client, "1.py")
    preview = reverse("preview", args=[sent.pk])
    assert "Found a team" in client.get(preview).content.decode()
    assert client.post(reverse("team-create"), {"name": "New", "next": preview})["Location"] == preview
    assert "Enter a model of New" in client.get(preview).content.decode()
    team = Team.objects.get(name="New")
    assert client.post(reverse("model-create", args=[team.slug]), {"name": "M", "next": preview})["Location"] == preview
    assert "Confirm and judge 1 file" in client.get(preview).content.decode()


def test_the_way_back_never_leaves_the_site(site: Site) -> None:
    response = site.client("stranger").post(reverse("team-create"), {"name": "New", "next": "https://evil.example/"})
    assert response["Location"] == reverse("team", args=["new-team"]) or "evil" not in response["Location"]


def test_folder_names_fill_in_the_form(site: Site) -> None:
    TargetFactory(name="h100x4", precision="bf16", precisions=["bf16", "fp16"], order=1)
    Target.objects.filter(name="cpu-gloo").update(precisions=["fp32"])
    client = site.client("owner")
    file = SimpleUploadedFile("1_problem_1_cuda.py", GOOD.encode())
    path = "solutions_cuda_bf16_h100_openai_gpt/1_problem_1_cuda.py"
    client.post(reverse("submit"), {"files": [file], "paths": f'["{path}"]', "end": "1"})
    form = client.get(reverse("preview", args=[Upload.objects.latest("created_at").pk])).context["form"]
    assert (form["backend"].value(), form["precision"].value(), form["targets"].value()) == ("cuda", "bf16", ["h100x4"])


def test_pasted_text_is_a_file(site: Site) -> None:
    client = site.client("owner")
    client.post(reverse("submit"), {"pasted_name": "1.py", "pasted": GOOD.replace("\n", "\r\n"), "end": "1"})
    assert [source.text for source in Upload.objects.latest("created_at").sources.all()] == [GOOD]


def test_withdrawing_leaves_a_tombstone(site: Site) -> None:
    site.client("member").post(reverse("run-withdraw", args=[site.run.public_id]), {"reason": "wrong folder"})
    page = site.client("anonymous").get(reverse("run", args=[site.run.public_id])).content.decode()
    assert "Withdrawn." in page
    assert "wrong folder" in page
    assert site.submission.file_name not in page
    board = site.client("anonymous").get(reverse("leaderboard")).content.decode()
    assert "Model One" not in board


def test_a_team_over_its_quota_is_told_when_and_keeps_its_upload(site: Site, settings: Any) -> None:
    settings.QUOTA_SECONDS, settings.QUOTA_WINDOW_SECONDS = 100, 86_400
    used_at = timezone.now() - timedelta(hours=2)
    QuotaEntry.objects.create(
        team=site.team, target=TargetFactory(), attempt=AttemptFactory(state="lost"), seconds=90, created_at=used_at
    )
    client = site.client("owner")
    sent = upload(client, "1.py")
    response = client.post(reverse("preview", args=[sent.pk]), declaration())
    assert response.status_code == 429
    assert "has used 90 s of its 100 evaluation seconds on cpu-gloo" in response.content.decode()
    retry_at = parse_http_date(response["Retry-After"])
    assert retry_at == int((used_at + timedelta(days=1)).timestamp())
    assert client.get(reverse("preview", args=[sent.pk])).status_code == 200, "the upload is still there"
    settings.QUOTA_SECONDS = 1_000
    assert client.post(reverse("preview", args=[sent.pk]), declaration()).status_code == 302


def test_an_upload_that_went_meanwhile_is_named(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The reaper removes it between the look at the page and the press of the button."""
    client = site.client("owner")
    sent = upload(client, "1.py")
    is_valid = DeclarationForm.is_valid

    def slow(form: DeclarationForm) -> bool:
        Upload.objects.filter(pk=sent.pk).delete()
        return is_valid(form)

    monkeypatch.setattr(DeclarationForm, "is_valid", slow)
    response = client.post(reverse("preview", args=[sent.pk]), declaration())
    assert response.status_code == 422
    assert "was not confirmed in time and is gone" in response.content.decode()


def test_costs_of_steps_are_previewed_fill_the_form_and_reach_the_files(site: Site) -> None:
    client = site.client("owner")
    names = ("step_0/1_p_pytorch.py", "step_1/1_p_pytorch.py", "costs.csv")
    table = "problem,step,cost_usd,cost_tokens\n1,0,0.25,1000\n1,1,0.00001,500\n"
    files = [SimpleUploadedFile(name, (table if name == "costs.csv" else f"{GOOD}# {name}").encode()) for name in names]
    client.post(reverse("submit"), {"files": files, "paths": json.dumps(names), "end": "1"})
    sent = Upload.objects.latest("created_at")
    response = client.get(reverse("preview", args=[sent.pk]))
    page = response.content.decode()
    assert "2 files can be judged." in page
    assert "Says what 2 steps cost." in page
    assert "Cost of the step: $0.25, 1,000 tokens." in page
    form = response.context["form"]
    assert (form["track"].value(), form["cost_usd"].value(), form["cost_tokens"].value()) == (
        "agentic", Decimal("0.2501"), 1_500,
    )  # fmt: skip

    too_little = client.post(reverse("preview", args=[sent.pk]), declaration(track="agentic", cost_usd="0.2"))
    assert too_little.status_code == 422
    assert "The cost of the run, $0.2, is below that of its steps in costs.csv" in too_little.content.decode()
    client.post(reverse("preview", args=[sent.pk]), declaration(track="agentic", cost_usd="0.2501"))
    run = Run.objects.get(upload=sent)
    step = run.submissions.get(step=0)
    assert (step.cost_usd, step.cost_tokens) == (Decimal("0.25"), 1_000)
    shown = client.get(reverse("submission", args=[step.public_id])).content.decode()
    assert "step 0, cost $0.25, 1,000 tokens" in shown
