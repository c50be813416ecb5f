"""Runs side by side: who wins where, what is refused, and what stays hidden."""

from __future__ import annotations

import re
from html import unescape

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from leaderboard.models import Evaluation, Run
from leaderboard.pages.compare import result
from leaderboard.scoring import ProblemOutcome
from problems.models import Suite
from tests.factories import RankedModelFactory, TargetFactory, evaluated_run
from tests.pages.site import Site


def compare(*ids: str, who: Client | None = None, **more: str) -> tuple[int, str]:
    response = (who or Client()).get(reverse("compare"), {"run": ids, **more})
    return response.status_code, re.sub(r"\s+", " ", unescape(response.content.decode()))


def rival(suite: Suite, *codes: str, **run: object) -> Run:
    return evaluated_run(*codes, suite=suite, model=RankedModelFactory(name="Rival"), **run).run


@pytest.mark.parametrize(
    ("first", "other", "wanted"),
    [
        (("correct", "faster", 2.0, True, 1.9), ("correct", "faster", 1.5, True, 1.4), "win"),
        (("correct", "faster", 1.5, True, 1.4), ("correct", "faster", 2.0, True, 1.9), "loss"),
        (
            ("correct", "faster", 1.5, True, 1.4),
            ("correct", "faster", 1.6, True, 1.45),
            "tie",
        ),  # 1.5²/1.4 = 1.61 > 1.45
        (("correct", "none", None, True), ("correct", "faster", 9.0, True, 8.0), "tie"),  # not timed: nobody can say
        (("correct", "tie", 1.0, True, 0.9), ("race", "none", None, False), "win"),
        (None, ("correct", "tie", 1.0, True, 0.9), "loss"),
        (("correct", "faster", 9.0, False, 8.0), ("deadlock", "none", None, False), "neither"),  # held: does not count
        (None, None, "neither"),
    ],
)
def test_the_interval_rule_decides(
    first: tuple[object, ...] | None, other: tuple[object, ...] | None, wanted: str
) -> None:
    outcomes = [ProblemOutcome(*parts) if parts else None for parts in (first, other)]  # type: ignore[arg-type]
    assert result(*outcomes) == wanted


def test_two_runs_are_told_apart_problem_by_problem(site: Site) -> None:
    other = rival(site.suite, "tie", "tie", "tie")
    status, page = compare(site.run.public_id, other.public_id)
    assert status == 200
    row = re.search(r'<th scope="row">B Rival</th>(.*?)</tr>', page)
    assert row is not None
    assert re.findall(r'class="num">(\d+)<', row[1]) == ["1", "1", "1", "1"]  # won, tied, lost, neither
    assert re.findall(r'class="result-(\w+)"', page) == ["win", "tie", "loss", "neither"]


@pytest.mark.parametrize(
    ("number", "status", "sentence"),
    [(0, 200, "Two to four runs"), (1, 200, "needs one to three more"), (5, 400, "5 runs were given; at most 4")],
)
def test_numbers_of_runs_that_do_not_fit(site: Site, number: int, status: int, sentence: str) -> None:
    ids = [site.run.public_id, *(rival(site.suite, "tie").public_id for _ in range(number - 1))][:number]
    got, page = compare(*ids)
    assert (got, sentence in page) == (status, True)


def test_the_same_run_twice_is_one(site: Site) -> None:
    status, page = compare(site.run.public_id, f" {site.run.public_id.upper()} ")
    assert status == 400
    assert "needs 2 to 4 runs; 1 given" in page


@pytest.mark.parametrize("hidden", [{"visibility": "private"}, {"state": "withdrawn"}])
def test_hidden_and_absent_runs_are_not_found_alike(site: Site, hidden: dict[str, str]) -> None:
    other = rival(site.suite, "tie", **hidden)
    pages = []
    for name in (other.public_id, "nothinghere1"):
        status, page = compare(site.run.public_id, name)
        assert status == 404
        assert "that you may see" in page
        pages.append(page.replace(name, "RUN"))
    assert pages[0] == pages[1]


def test_runs_of_different_boards_cannot_be_compared(site: Site) -> None:
    other = rival(site.suite, "tie")
    Evaluation.objects.filter(run=other).update(target=TargetFactory(name="h100x4"))
    status, page = compare(site.run.public_id, other.public_id)
    assert status == 400
    assert "no target and suite version in common" in page


@pytest.mark.parametrize("text", ["<script>", "'; drop table", "9" * 300, "\x00"])
def test_nonsense_is_shown_as_text(site: Site, text: str) -> None:
    response = Client().get(reverse("compare"), {"run": [site.run.public_id, text]})
    assert response.status_code in (200, 404)
    assert b"<script>" not in response.content


def test_files_are_compared_only_where_both_may_be_seen(site: Site) -> None:
    other = rival(site.suite, "tie")
    ids = site.run.public_id, other.public_id
    _, page = compare(*ids, problem="1")
    assert "1 line added, 1 removed" in page
    Run.objects.filter(pk=other.pk).update(source_visibility="private")
    _, page = compare(*ids, problem="1")
    assert "The source of B Rival is kept by its team" in page
    assert "return x" not in page


def test_costs_do_not_grow_with_verdicts(site: Site) -> None:
    few, many = rival(site.suite, "tie"), rival(site.suite, "tie", "faster", "race", "deadlock")
    counts = []
    for other in (few, few, many):
        with CaptureQueriesContext(connection) as captured:
            compare(site.run.public_id, other.public_id)
        counts.append(len(captured))
    assert counts[1] == counts[2] <= 6
