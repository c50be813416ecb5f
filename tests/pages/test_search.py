"""Search finds by every name that a reader may know, and nothing that the reader may not see."""

from __future__ import annotations

import re
from datetime import timedelta
from html import unescape

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone

from leaderboard.models import RankedModel, Run, Team
from problems.models import Problem
from tests.factories import RankedModelFactory, evaluated_run
from tests.pages.site import Site


def look(text: str, client: Client | None = None) -> tuple[int, str, list[str]]:
    response = (client or Client()).get(reverse("search"), {"q": text})
    page = re.sub(r"\s+", " ", unescape(response.content.decode())).partition("<main")[2].partition("</main>")[0]
    return response.status_code, page, re.findall(r'<li><a href="([^"]+)">', page)


@pytest.mark.parametrize("text", ["Model One", "model o", "ONE", "model-one", "Example Labs", "  One  "])
def test_a_model_is_found_by_any_part_of_its_names(site: Site, text: str) -> None:
    assert reverse("model", args=["model-one"]) in look(text)[2]


@pytest.mark.parametrize("text", ["13", "#13", "gemm allreduce", "GEMM-All", "older_name", "matrix prod"])
def test_a_problem_is_found_by_number_slug_title_and_older_names(site: Site, text: str) -> None:
    Problem.objects.create(
        number=13, slug="gemm_allreduce", title="Matrix product", type="tensor", difficulty=1, aliases=["older_name"]
    )
    assert look(text)[2][0] == reverse("problem", args=[13])


def test_a_team_a_run_and_a_file_are_found(site: Site) -> None:
    assert reverse("team", args=["kernel-lab"]) in look("kernel")[2]
    assert look(site.run.public_id)[2] == [reverse("run", args=[site.run.public_id])]
    assert look(site.submission.public_id.upper())[2] == [reverse("submission", args=[site.submission.public_id])]


@pytest.mark.parametrize("change", [{"visibility": "private"}, {"visibility": "embargoed"}])
def test_what_is_hidden_is_not_found(site: Site, change: dict[str, str]) -> None:
    Run.objects.filter(pk=site.run.pk).update(**change, embargo_until=timezone.now() + timedelta(days=1))
    for text in ("Model One", "Kernel Lab", site.run.public_id, site.submission.public_id):
        for who, sees in (("anonymous", False), ("stranger", False), ("member", True), ("maintainer", True)):
            assert bool(look(text, site.client(who))[2]) is sees, f"{who}: {text}"


def test_a_withdrawn_run_keeps_its_files_to_itself(site: Site) -> None:
    Run.objects.filter(pk=site.run.pk).update(state="withdrawn")
    assert look(site.submission.public_id)[2] == []


def test_an_alias_is_found_and_what_it_hides_is_not(site: Site) -> None:
    RankedModel.objects.filter(pk=site.run.model_id).update(alias="Anonymous 7")
    assert look("anonymous")[2] == [reverse("model", args=["model-one"])]
    for text in ("Model One", "Example Labs", "model-one"):
        assert look(text)[2] == [], text
    assert look("Model One", site.client("member"))[2] == [reverse("model", args=["model-one"])]


@pytest.mark.parametrize(
    ("text", "status", "sentence"),
    [
        ("", 200, "Type part of the name"),
        ("   ", 200, "Type part of the name"),
        ("nothing like this", 200, "Nothing that you may see is called “nothing like this”"),
        ("x" * 101, 400, "has 101 characters; at most 100"),
        ("100%_\\", 200, "Nothing that you may see"),
        ("a\x00b", 200, "Nothing that you may see is called “a b”"),
        ("<script>alert(1)</script>", 200, "Nothing that you may see"),
    ],
)
def test_empty_long_and_odd_texts_have_their_sentences(site: Site, text: str, status: int, sentence: str) -> None:
    got, page, hits = look(text)
    assert (got, sentence in page, hits) == (status, True, [])


def test_a_long_list_says_that_there_is_more(site: Site) -> None:
    Team.objects.filter(pk=site.team.pk).update(name="Needle")
    for number in range(21):
        evaluated_run("tie", suite=site.suite, model=RankedModelFactory(name=f"Needle {number}"))
    _, page, hits = look("needle")
    assert len(hits) == 20 + 1  # models and the team
    assert "These are the first 20" in page


def test_the_number_of_queries_does_not_depend_on_what_is_found(site: Site) -> None:
    counts = []
    for text in ("nothing", "nothing", "model"):
        with CaptureQueriesContext(connection) as captured:
            look(text)
        counts.append(len(captured))
    assert counts[1] == counts[2] <= 8
