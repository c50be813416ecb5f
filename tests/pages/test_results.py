"""Results over many runs: of a problem, of the catalogue, of a board; and what they cost the database."""

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

from leaderboard import scores
from leaderboard.models import RankedModel, Run, Standing, Submission, Target, Verdict
from leaderboard.pages.differences import MAX_LINES, between
from problems.models import Problem, Suite
from tests.factories import (
    EvaluationFactory,
    RankedModelFactory,
    RunFactory,
    SourceFileFactory,
    SubmissionFactory,
    VerdictFactory,
    evaluated_run,
)
from tests.pages.site import Site, with_report


def show(address: str, client: Client | None = None) -> str:
    response = (client or Client()).get(address)
    assert response.status_code == 200, address
    return re.sub(r"\s+", " ", unescape(response.content.decode()))


def results(page: str) -> str:
    return page.partition('id="results"')[2].partition("<h2>Prompt")[0]


def best_models(number: int = 1, query: str = "") -> list[str]:
    section = results(show(reverse("problem", args=[number]) + query)).partition('aria-label="Best answers"')[2]
    return re.findall(r'<th scope="row" class="text"><a [^>]*>([^<]+)</a>', section)


def run_of(suite: Suite, name: str, speedup: float, **run: object) -> Run:
    evaluation = evaluated_run("faster", suite=suite, model=RankedModelFactory(name=name), **run)
    Verdict.objects.filter(evaluation=evaluation).update(speedup=speedup)
    return evaluation.run


# A problem ------------------------------------------------------------------------------------------------------------


def test_the_fastest_answers_come_first_and_each_run_once(site: Site) -> None:
    run_of(site.suite, "Slow", 1.2)
    fast = run_of(site.suite, "Fast", 5.0)
    problem = Problem.objects.get(number=1)
    again = SubmissionFactory(run=fast, problem=problem, sample=1)
    VerdictFactory(evaluation=fast.evaluations.get(), submission=again, speedup=4.0)
    assert best_models() == ["Fast", "Model One", "Slow"]
    page = results(show(reverse("problem", args=[1])))
    assert 'id="plot-distribution"' in page
    assert 'id="plot-best"' in page


@pytest.mark.parametrize(
    "hide",
    [
        lambda run: Run.objects.filter(pk=run.pk).update(visibility="private"),
        lambda run: Run.objects.filter(pk=run.pk).update(
            visibility="embargoed", embargo_until=timezone.now() + timedelta(days=1)
        ),
        lambda run: Run.objects.filter(pk=run.pk).update(state="withdrawn"),
        lambda run: Run.objects.filter(pk=run.pk).update(state="disqualified"),
        lambda run: RankedModel.objects.filter(pk=run.model_id).update(is_baseline=True),
        lambda run: Verdict.objects.filter(evaluation__run=run).update(standing=Standing.HELD),
        lambda run: Verdict.objects.filter(evaluation__run=run).update(code="race", decision="none"),
    ],
    ids=["private", "embargoed", "withdrawn", "disqualified", "baseline", "held", "wrong"],
)
def test_only_what_counts_and_is_public_is_among_the_best(site: Site, hide: object) -> None:
    hide(run_of(site.suite, "Hidden", 9.0))  # type: ignore[operator]
    assert best_models() == ["Model One"]


def test_an_alias_stands_for_the_name(site: Site) -> None:
    RankedModel.objects.filter(pk=site.run.model_id).update(alias="Anonymous 3")
    assert best_models() == ["Anonymous 3"]
    assert "Model One" not in show(reverse("problem", args=[1]))


def test_a_problem_without_answers_asks_for_the_first(site: Site) -> None:
    assert "No public run has a correct answer" in results(show(reverse("problem", args=[4])))
    assert "There is no open target called “nonsense”" in results(
        show(reverse("problem", args=[1]) + "?target=nonsense")
    )


def test_untimed_answers_are_listed_by_date(site: Site) -> None:
    Verdict.objects.update(speedup=None, speedup_low=None, speedup_high=None, decision="none")
    page = results(show(reverse("problem", args=[1])))
    assert "Correct answers, newest first" in page
    assert "speed is not measured on this target" in page


def test_the_catalogue_says_who_solved_what(site: Site) -> None:
    evaluated_run("tie", "faster", suite=site.suite)
    page = show(reverse("problems"))
    rows = re.findall(r'(\d+)<span class="muted">/2</span></td><td class="num">(\d+)<span class="muted">/2', page)
    assert rows == [("2", "1"), ("2", "1"), ("0", "0"), ("0", "0")]


# A board --------------------------------------------------------------------------------------------------------------


def test_the_analysis_adds_up_the_ranked_public_runs(site: Site) -> None:
    for mechanisms, run in ((["TMA"], {}), (["multimem"], {"visibility": "private"})):
        evaluation = EvaluationFactory(run=RunFactory(**run), suite=site.suite, state="completed")
        for number, code in ((1, "correct"), (2, "deadlock")):
            submission = SubmissionFactory(run=evaluation.run, problem=Problem.objects.get(number=number))
            VerdictFactory(
                evaluation=evaluation, submission=submission, code=code, mechanisms=mechanisms, failed_phase="trials"
            )
        scores.materialise(evaluation)
    page = show(reverse("analysis"))
    assert "Over the 2 ranked runs" in page
    assert re.search(r'<th scope="row" class="text">Tensor</th> ?<td class="num">2 / 1 / 1</td>', page)
    assert "multimem" not in page


def test_an_analysis_of_nothing_says_what_to_do(site: Site) -> None:
    Target.objects.create(
        name="empty", title="Empty", device="cuda", world_size=2, precision="bf16", queue="eval.empty"
    )
    assert "No run is ranked here yet" in show(reverse("analysis") + "?target=empty")
    assert "There is no target called “a\x00b”" in show(reverse("analysis") + "?target=a%00b")
    assert "There is no target called “other”" in show(reverse("analysis") + "?target=other")


def test_queries_do_not_grow_with_verdicts(suite: Suite) -> None:
    addresses = [reverse("problem", args=[1]), reverse("analysis"), reverse("problems")]
    evaluated_run("faster", suite=suite, model=RankedModelFactory(slug="fixed"))
    addresses.append(reverse("model", args=["fixed"]))

    def cold(address: str) -> int:
        evaluated_run("faster", suite=suite)  # whatever was cached is out of date
        with CaptureQueriesContext(connection) as captured:
            show(address)
        return len(captured)

    few = [cold(address) for address in addresses]
    for _ in range(12):
        evaluated_run("faster", "tie", "deadlock", "race", suite=suite)
    assert [cold(address) for address in addresses] == few
    assert max(few) <= 14


# A file ---------------------------------------------------------------------------------------------------------------


def agent(site: Site) -> list[Submission]:
    run = RunFactory(model=site.run.model, track="agentic")
    problem = Problem.objects.get(number=1)
    texts = ("def solution(x):\n    return x\n", "def solution(x):\n    return x + 1  # <b>\n")
    return [
        SubmissionFactory(run=run, problem=problem, step=step, source=SourceFileFactory(text=text))
        for step, text in enumerate(texts)
    ]


def test_a_step_shows_what_changed_since_the_one_before(site: Site) -> None:
    first, second = agent(site)
    page = Client().get(reverse("submission", args=[second.public_id])).content.decode()
    assert '<span class="d-removed">-    return x' in page
    assert '<span class="d-added">+    return x + 1  # &lt;b&gt;' in page
    assert 'id="difference"' not in show(reverse("submission", args=[first.public_id]))
    Run.objects.filter(pk=second.run_id).update(source_visibility="private")
    assert 'id="difference"' not in show(reverse("submission", args=[second.public_id]))
    assert 'id="difference"' in show(reverse("submission", args=[second.public_id]), site.client("member"))


def test_long_files_are_not_compared_here() -> None:
    assert between("x\n" * (MAX_LINES + 1), "y\n", old_name="a", new_name="b").too_long
    assert between("x\n", "x\n", old_name="a", new_name="b").lines == []


def test_the_map_of_failures_names_trial_and_rank(site: Site) -> None:
    wrong = site.evaluation.verdicts.get(code="deadlock")
    with_report(wrong)
    page = show(reverse("submission", args=[wrong.submission.public_id]))
    table = page.partition('aria-label="Trials that fail, by rank"')[2].partition("</table>")[0]
    rows = [re.findall(r'class="(fails|holds)"', row) for row in table.split("<tr>")[2:]]
    assert rows == [["holds"] * 4, ["holds", "holds", "holds", "fails"]]
    right = site.evaluation.verdicts.filter(code="correct").first()
    with_report(right)
    assert "Trials that fail, by rank" not in show(reverse("submission", args=[right.submission.public_id]))
