"""An agent's run over its steps: charts with their tables, files to take away, what is said where costs are missing."""

from __future__ import annotations

import csv
import io
import json
import re
from decimal import Decimal

import pyarrow.parquet as pq
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from leaderboard import scores
from leaderboard.models import Evaluation, EvaluationState, Submission, Track
from problems.models import Problem, Suite
from tests.factories import (
    EvaluationFactory,
    ProblemFactory,
    ProblemVersionFactory,
    RunFactory,
    SubmissionFactory,
    SuiteFactory,
    VerdictFactory,
)

pytestmark = pytest.mark.django_db


@pytest.fixture
def suite() -> Suite:
    suite = SuiteFactory(size=0, is_current=True)
    suite.problem_versions.set(ProblemVersionFactory(problem=ProblemFactory(number=n)) for n in (1, 2))
    return suite


def evaluated(suite: Suite, track: str, *bill: tuple[str | None, int | None]) -> Evaluation:
    """A run with a file of problem 1 and, in its first step, of problem 2; each file of step i costs ``bill[i]``."""
    evaluation = EvaluationFactory(
        run=RunFactory(track=track, cost_usd=9), suite=suite, state=EvaluationState.COMPLETED
    )
    for step, (usd, tokens) in enumerate(bill):
        for number in (1, 2) if step == 0 else (1,):
            submission = SubmissionFactory(
                run=evaluation.run,
                problem=Problem.objects.get(number=number),
                step=step,
                cost_usd=usd and Decimal(usd),
                cost_tokens=tokens,
            )
            VerdictFactory(evaluation=evaluation, submission=submission, code="correct" if step else "wrong_values")
    scores.materialise(evaluation)
    return evaluation


def page(evaluation: Evaluation) -> str:
    return Client().get(reverse("run", args=[evaluation.run.public_id])).content.decode()


def table(text: str, key: str) -> list[list[str]]:
    """The rows of the table below a chart."""
    figure = re.search(rf'<figure class="plot" id="plot-{key}">.*?</figure>', text, re.DOTALL)
    assert figure, f"no chart {key}"
    body = figure[0].partition("<tbody>")[2]
    return [re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", row) for row in body.split("</tr>")[:-1]]


def test_costs_stand_beside_correct_and_faster_for_every_step(suite: Suite) -> None:
    text = page(evaluated(suite, Track.AGENTIC, ("0.10", 1_000), ("1.5", 20_000)))
    assert table(text, "steps") == [["0", "2", "0", "0", "0", "0"], ["1", "2", "1", "1", "1", "1"]]
    assert table(text, "step-costs") == [["0", "$0.20", "2,000", "0", "0"], ["1", "$1.70", "22,000", "1", "1"]]
    assert "By step 1, $1.70, 22,000 tokens had been spent." in text
    assert "There is no curve of costs" not in text


def test_tokens_are_drawn_where_dollars_are_not_known(suite: Suite) -> None:
    text = page(evaluated(suite, Track.AGENTIC, (None, 1_000), (None, 5)))
    assert table(text, "step-costs") == [["0", "–", "2,000", "0", "0"], ["1", "–", "2,005", "1", "1"]]
    assert "Spent so far, tokens" in text


def test_the_curve_ends_before_a_step_with_a_file_without_cost(suite: Suite) -> None:
    text = page(evaluated(suite, Track.AGENTIC, ("0.10", None), (None, None), ("0.5", None)))
    assert [row[1] for row in table(text, "step-costs")] == ["$0.20", "–", "–"]
    assert "It ends before step 1, which has a file without a cost." in text


def test_without_costs_the_page_says_so_and_how_to_give_them(suite: Suite) -> None:
    text = page(evaluated(suite, Track.AGENTIC, (None, None)))
    assert 'id="plot-step-costs"' not in text
    assert "There is no curve of costs" in text
    guide = f"{reverse('document', args=['feedback'])}#costs-of-steps"
    assert guide in text
    assert 'id="costs-of-steps"' in Client().get(guide).content.decode(), "the link must lead somewhere"
    assert 'id="cost-step-by-step"' in Client().get(reverse("document", args=["reading_results"])).content.decode()
    assert 'id="steps-of-a-run"' in Client().get(reverse("document", args=["exports"])).content.decode()


def test_other_tracks_have_no_steps_and_no_files_of_them(suite: Suite) -> None:
    evaluation = evaluated(suite, Track.SINGLE_SHOT, (None, None))
    text = page(evaluation)
    assert "There is no curve of costs" not in text
    assert "The steps as a file" not in text
    for kind in ("csv", "json", "parquet"):
        assert Client().get(reverse("run-steps", args=[evaluation.run.public_id, kind])).status_code == 404


def test_all_formats_hold_what_the_charts_show(suite: Suite) -> None:
    evaluation = evaluated(suite, Track.AGENTIC, ("0.10", 1_000), ("0.000001", None))
    wanted = [
        {"step": 0, "answered": 2, "correct": 0, "faster": 0, "ever_correct": 0, "ever_faster": 0,
         "cost_usd": 0.2, "cost_tokens": 2_000},
        {"step": 1, "answered": 2, "correct": 1, "faster": 1, "ever_correct": 1, "ever_faster": 1,
         "cost_usd": 0.200001, "cost_tokens": None},
    ]  # fmt: skip
    links = dict(re.findall(r'<a href="(/runs/[^"]+)" download>(\w+)</a>', page(evaluation)))
    files = {kind: Client().get(address) for address, kind in links.items()}
    assert files["JSON"].json()["steps"] == wanted
    assert (files["JSON"].json()["problems"], files["JSON"].json()["cost_usd"]) == (2, 9.0)
    lines = list(csv.DictReader(io.StringIO(files["CSV"].content.decode())))
    assert lines == [{key: "" if value is None else str(value) for key, value in row.items()} for row in wanted]
    parquet = pq.read_table(io.BytesIO(files["Parquet"].content))
    assert parquet.to_pylist() == wanted
    assert json.loads(parquet.schema.metadata[b"pkb"])["evaluation"] == evaluation.public_id
    name = f'attachment; filename="run-{evaluation.run.public_id}-steps.csv"'
    assert files["CSV"]["Content-Disposition"] == name


def test_a_file_of_an_unknown_kind_or_evaluation_is_not_there(suite: Suite) -> None:
    run_id = evaluated(suite, Track.AGENTIC, ("1", 1)).run.public_id
    assert Client().get(reverse("run-steps", args=[run_id, "xml"])).status_code == 404
    assert Client().get(reverse("run-steps", args=[run_id, "csv"]), {"on": "nothing"}).status_code == 404


def test_steps_and_costs_need_no_query_for_each_file(suite: Suite) -> None:
    counted = []
    for steps in (2, 12):
        evaluation = evaluated(suite, Track.AGENTIC, *[("0.1", 10)] * steps)
        run_id = evaluation.run.public_id
        with CaptureQueriesContext(connection) as shown:
            assert Client().get(reverse("run", args=[run_id])).status_code == 200
        with CaptureQueriesContext(connection) as sent:
            assert Client().get(reverse("run-steps", args=[run_id, "csv"])).status_code == 200
        assert not any(Submission._meta.db_table in query["sql"] for query in sent), "files are not added up again"
        counted.append((len(shown), len(sent)))
    assert counted[0] == counted[1]
    assert counted[0][1] <= 2
