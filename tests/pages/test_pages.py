"""What the pages show, and what they cost the database."""

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

from evaluator.contract import Code
from leaderboard import versions
from leaderboard.models import Attempt, AttemptState, Evaluation, PublishedResult, Target
from leaderboard.pages import docs
from leaderboard.scoring import RANKING_RULE
from problems.models import Problem, Suite
from tests.factories import (
    AttemptFactory,
    EvaluationFactory,
    RankedModelFactory,
    RunFactory,
    SubmissionFactory,
    TargetFactory,
    WorkerFactory,
    evaluated_run,
)
from tests.pages.site import Site, with_report

LISTS = ("leaderboard", "models", "problems", "published", "status", "about", "cite", "methodology")


def show(address: str, client: Client | None = None) -> str:
    response = (client or Client()).get(address)
    assert response.status_code == 200, address
    return re.sub(r"\s+", " ", unescape(response.content.decode()))


def queries(address: str) -> int:
    with CaptureQueriesContext(
        connection,
    ) as captured:
        show(address)
    return len(captured)


# Leaderboard ----------------------------------------------------------------------------------------------------------


def test_a_row_says_everything_of_a_run(site: Site) -> None:
    page = show(reverse("leaderboard"))
    for part in (
        "Model One",
        "Example Labs",
        "Kernel Lab",
        "Single-shot",
        "Self-reported",
        "PyTorch",
        ">2/4<",
        "25.0 %",
    ):
        assert part in page, part
    assert "50.0 % correct, 95 % interval 15.0 % to 85.0 %" in page  # Wilson of 2/4
    assert "Tensor: 2 of 4 correct" in page
    assert RANKING_RULE in page


def test_rows_are_ranked_and_sorted(suite: Suite) -> None:
    for name, codes in {"Best": ["faster"] * 4, "Worst": ["tie"], "Middle": ["tie", "faster"]}.items():
        evaluated_run(*codes, suite=suite, model=RankedModelFactory(name=name))

    def names(address: str) -> list[str]:
        return re.findall(r'<th scope="row"><a href="/models/[^"]*">(\w+)<', show(address))

    assert names("/") == ["Best", "Middle", "Worst"]
    assert names("/?sort=-rank") == ["Worst", "Middle", "Best"]
    assert names("/?sort=model") == ["Best", "Middle", "Worst"]
    assert names("/?sort=nonsense") == ["Best", "Middle", "Worst"]


def test_filters_keep_what_fits(suite: Suite) -> None:
    evaluated_run("tie", suite=suite, backend="cuda", model=RankedModelFactory(name="Cuda", open_weights=True))
    evaluated_run("tie", suite=suite, backend="triton", model=RankedModelFactory(name="Triton"), track="agentic")
    for query, kept, gone in (
        ("backend=cuda", ">Cuda<", ">Triton</a>"),
        ("track=agentic", ">Triton</a>", ">Cuda</a>"),
        ("weights=open", ">Cuda</a>", ">Triton</a>"),
        ("precision=fp32&track=", ">Cuda</a>", "No run"),
    ):
        page = show(f"/?{query}")
        assert kept in page, query
        assert gone not in page, query
    assert "No run fits this selection" in show("/?precision=bf16")
    assert "Select a valid choice" in show("/?backend=abacus")


def test_a_type_shows_and_ranks_its_own_figures(suite: Suite) -> None:
    Problem.objects.filter(number__in=(3, 4)).update(type="graph")
    evaluated_run("tie", "tie", suite=suite, model=RankedModelFactory(name="Tensor expert"))
    page = show("/?type=graph")
    assert ">0/2</a>" in page
    assert ">2/2</a>" in show("/?type=tensor")


def test_rows_of_other_hardware_never_mix(site: Site) -> None:
    other = TargetFactory(name="h100x4", title="4 × H100", order=500)
    Evaluation.objects.filter(pk=evaluated_run("tie", suite=site.suite).pk).update(target=other)
    assert show("/").count('title="To the run"') == 1
    assert show("/?target=h100x4").count('title="To the run"') == 1


def test_the_baseline_is_pinned_and_has_no_rank(site: Site) -> None:
    evaluated_run(*["tie"] * 4, suite=site.suite, model=RankedModelFactory(name="Reference", is_baseline=True))
    page = show("/")
    assert page.index("Reference</a>") < page.index("Model One</a>")
    assert '<tr class="pinned"> <td class="num"><span class="muted">baseline</span>' in page


@pytest.mark.parametrize("visibility", ["private", "embargoed"])
def test_the_board_is_the_same_for_everybody(site: Site, visibility: str) -> None:
    """Members do not see their hidden runs ranked: a rank that only some can see is none."""
    run = site.run
    run.visibility, run.embargo_until = visibility, timezone.now() + timedelta(days=1)
    run.save()
    assert "Model One" not in show("/", site.client("owner"))


def test_an_alias_hides_name_and_organisation(site: Site) -> None:
    model = site.run.model
    model.alias, model.link = "Anonymous 1", "https://one.example/"
    model.save()
    for route in ("leaderboard", "models"):
        page = show(reverse(route))
        assert "Anonymous 1" in page
        assert "Model One" not in page
        assert "Example Labs" not in page
    for page in (show(reverse("model", args=[model.slug])), show(reverse("run", args=[site.run.public_id]))):
        assert "Model One" not in page
        assert "one.example" not in page


def test_published_figures_stand_apart(site: Site) -> None:
    PublishedResult.objects.create(
        key="x", kind="model", model="Elsewhere 1", track="agentic", problems=87, correct=35, source="a talk"
    )
    page = show("/")
    assert page.index("</table>") < page.index("Reported elsewhere") < page.index("Elsewhere 1")
    assert "35/87" in show(reverse("published"))


# Empty states and costs -----------------------------------------------------------------------------------------------


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("route", "sentence"),
    [
        ("leaderboard", "No run is ranked here yet"),
        ("models", "No model has a result yet"),
        ("problems", "The catalogue is empty."),
        ("published", "No figures are loaded."),
        ("status", "No target is set up."),
        ("about", "No suite is loaded"),
        ("cite", "How to cite"),
        ("methodology", "No target is set up."),
    ],
)
def test_an_empty_site_says_what_to_do_next(route: str, sentence: str) -> None:
    assert sentence in show(reverse(route))


@pytest.mark.parametrize("route", LISTS)
def test_the_number_of_queries_does_not_grow(suite: Suite, route: str) -> None:
    """One row or forty, one verdict or a hundred and sixty: the same queries."""
    evaluated_run("tie", suite=suite)
    address = reverse(route)
    queries(address)
    versions.bump()  # nothing is taken from the cache
    with_one = queries(address)
    for _ in range(39):
        evaluated_run("faster", "tie", "deadlock", "race", suite=suite)
    assert queries(address) == with_one <= 16


def test_a_run_costs_the_same_with_many_answers(site: Site) -> None:
    few = EvaluationFactory(run=RunFactory(model=site.run.model), suite=site.suite)
    SubmissionFactory(run=few.run, problem=Problem.objects.get(number=1))
    many = EvaluationFactory(run=RunFactory(model=site.run.model), suite=site.suite)
    for problem in Problem.objects.all():
        for sample in range(5):
            AttemptFactory(
                evaluation=many, submission=SubmissionFactory(run=many.run, problem=problem, sample=sample), leased=True
            )
    addresses = [reverse("run", args=[evaluation.run.public_id]) for evaluation in (few, many)]
    assert queries(addresses[1]) <= queries(addresses[0]) <= 12


# Run and submission ---------------------------------------------------------------------------------------------------


def test_a_run_shows_a_cell_for_each_problem(site: Site) -> None:
    page = show(reverse("run", args=[site.run.public_id]))
    assert page.count('<li class="cell') == 4
    assert "no file sent" in page
    assert "correct, faster 2.00×" in page
    assert "correct, tie 1.00×" in page
    assert "deadlock" in page
    assert "hx-get" not in page, "nothing can change any more"


def test_a_running_run_says_how_far_it_is(site: Site) -> None:
    evaluation = EvaluationFactory(
        run=RunFactory(model=site.run.model), suite=site.suite, state="running", target=TargetFactory(name="cpu-gloo")
    )
    ahead = EvaluationFactory(suite=site.suite, target=evaluation.target)
    for _ in range(2):
        AttemptFactory(evaluation=ahead)
    for number, state in ((1, {"leased": True, "phase": "trials", "phase_done": 3, "phase_total": 5}), (2, {})):
        submission = SubmissionFactory(run=evaluation.run, problem=Problem.objects.get(number=number))
        AttemptFactory(evaluation=evaluation, submission=submission, **state)
    page = show(reverse("run", args=[evaluation.run.public_id]))
    assert "trials 3 of 5" in page
    assert '<progress value="3" max="5"' in page
    assert "queued" in page
    assert "2 files of others stand before the next one of this run" in page
    assert page.count("htmx-2.min.js") == 1


def test_a_submission_shows_all_of_its_report(site: Site) -> None:
    for verdict in site.evaluation.verdicts.all():
        with_report(verdict)
    correct, _, wrong = site.run.submissions.order_by("problem__number")
    page = show(reverse("submission", args=[correct.public_id]))
    for part in (
        "Correct, faster 2.00×",
        "2.00× (95 % interval 1.90–2.10×)",
        "could have called faster is 1.08×",
        "1.00 ms, limited by link; 50.0 % of it reached",
        "The machine was busy in one block.",
        "bwrap-user, uid 1000, network unreachable, seccomp, no cgroup",
        "torch 2.13.0",
    ):
        assert part in page, part
    assert page.count('<circle class="reference"') == page.count('<circle class="candidate"') == 25
    page = show(reverse("submission", args=[wrong.public_id]) + "?rank=2")
    for part in (
        "Look at the last rank.",
        "exactly rank 3's share missing",
        "failed first",
        "rank 2 says hello",
        "25.0 %",
    ):
        assert part in page, part
    assert "rank 1 says hello" not in page
    for query in ("", "?rank=99", "?rank=x", "?rank=" + "9" * 5000):
        assert "rank 1 says hello" in show(reverse("submission", args=[wrong.public_id]) + query), (
            "the one that failed first"
        )


def test_kept_sources_keep_tracebacks_and_output_too(site: Site) -> None:
    for verdict in site.evaluation.verdicts.all():
        with_report(verdict)
    site.run.source_visibility = "private"
    site.run.save()
    wrong = site.run.submissions.order_by("-problem__number").first()
    assert wrong is not None
    address = reverse("submission", args=[wrong.public_id])
    for text in ("Traceback of rank 1", "rank 1 says hello", "def solution"):
        assert text not in re.sub("<[^>]+>", "", show(address)), text
        assert text in re.sub("<[^>]+>", "", show(address, site.client("member"))), text


def test_source_is_shown_as_text_and_sent_as_a_download(site: Site) -> None:
    submission = site.submission
    submission.source.text = "</pre><script>alert(1)</script>\n"
    submission.source.save()
    assert b"<script>alert" not in Client().get(reverse("submission", args=[submission.public_id])).content
    response = Client().get(reverse("submission-source", args=[submission.public_id]))
    assert response["Content-Type"] == "text/plain; charset=utf-8"
    assert response["Content-Disposition"].startswith("attachment")
    assert response["X-Content-Type-Options"] == "nosniff"


def test_a_verdict_that_came_in_the_meantime_reloads_the_page(site: Site) -> None:
    response = Client().get(reverse("submission-live", args=[site.submission.public_id]))
    assert response["HX-Refresh"] == "true"
    waiting = AttemptFactory(evaluation=EvaluationFactory(suite=site.suite)).submission
    assert "HX-Refresh" not in Client().get(reverse("submission-live", args=[waiting.public_id]))


# Documents ------------------------------------------------------------------------------------------------------------


@pytest.mark.django_db
def test_documents_link_to_each_other_and_into_themselves() -> None:
    pages = {address: show(address) for address in re.findall(r'href="(/docs/\w+/)"', show(reverse("documents")))}
    assert "/docs/feedback/" in pages
    for address, page in pages.items():
        assert page.count("<h1") == 1, address
        for target, anchor in re.findall(r'href="(/docs/\w+/)?#([\w-]+)"', page.partition("<main")[2]):
            assert f'id="{anchor}"' in pages[target or address], f"{address} links to {target}#{anchor}"
        assert not re.search(r'href="[^"]*\.md', page), address


@pytest.mark.django_db
@pytest.mark.parametrize("name", ["../README", "settings", "..%2f..%2fpyproject", "data"])
def test_no_other_file_is_a_document(name: str) -> None:
    assert Client().get(f"/docs/{name}/").status_code == 404


def test_every_code_is_explained() -> None:
    text = (docs.FOLDER / "feedback.md").read_text()
    assert [code for code in Code if f"`{code}`" not in text] == []


# Status, errors, headers ----------------------------------------------------------------------------------------------


def test_status_tells_waiting_from_stuck(site: Site) -> None:
    now = timezone.now()
    target = Target.objects.get(name="cpu-gloo")
    queued = AttemptFactory(evaluation=site.evaluation, created_at=now - timedelta(minutes=20))
    assert "waits for a worker" in show(reverse("status"))
    WorkerFactory(target=target, last_seen_at=now)
    page = show(reverse("status"))
    assert "waits for a worker" not in page
    assert "20 min" in page
    Attempt.objects.filter(pk=queued.pk).update(state=AttemptState.CANCELLED)
    assert "20 min" not in show(reverse("status"))


@pytest.mark.django_db
def test_errors_have_their_pages() -> None:
    response = Client().get("/nothing/here/")
    assert response.status_code == 404
    assert b"There is nothing here" in response.content


def test_a_failure_of_ours_says_so(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaderboard.pages.models.lines", lambda: 1 / 0)
    response = Client(raise_request_exception=False).get(reverse("models"))
    assert response.status_code == 500
    assert b"Something failed on our side" in response.content


def test_nothing_in_a_page_needs_an_inline_script_or_style(site: Site) -> None:
    """The policy would block it; this finds it without a browser."""
    for verdict in site.evaluation.verdicts.all():
        with_report(verdict)
    client = site.client("owner")
    for address in (
        *(reverse(route) for route in (*LISTS, "submit", "teams", "account_email")),
        reverse("run", args=[site.run.public_id]),
        reverse("submission", args=[site.submission.public_id]),
        reverse("problem", args=[1]),
        reverse("team", args=[site.team.slug]),
    ):
        html = client.get(address).content.decode()
        assert not re.search(r"<[^>]+\sstyle=", html), address
        assert not re.search(r"<[^>]+\son\w+=", html), address
        assert not re.search(r"<script(?![^>]*\b(src=|type=.application/json))", html), address
        assert "<style" not in html, address
        assert not re.search(r"<(script|link|img)[^>]+(src|href)=.(https?:)?//", html), address
