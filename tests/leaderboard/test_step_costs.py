"""What the steps of an agent cost: read from costs.csv, each wrong line named, nothing half taken, kept with files."""

from __future__ import annotations

import io
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leaderboard.intake import Declaration, IntakeError, Sent, confirm, preview
from leaderboard.models import Track, Upload, UploadState, User
from problems.models import Suite
from tests.factories import (
    MembershipFactory,
    ProblemFactory,
    ProblemVersionFactory,
    RankedModelFactory,
    SuiteFactory,
    TargetFactory,
    UserFactory,
)

pytestmark = pytest.mark.django_db
FILES = ("step_0/1_allreduce_cuda.py", "step_0/13_gemm_allreduce_cuda.py", "step_1/1_allreduce_cuda.py")
ALL = "problem,step,cost_usd,cost_tokens\n1,0,0.10,1000\n13,0,0.20,2000\n1,1,0.000001,3000\n"


@pytest.fixture
def suite() -> Suite:
    suite = SuiteFactory(size=0)
    for number, slug in [(1, "allreduce"), (13, "gemm_allreduce")]:
        suite.problem_versions.add(ProblemVersionFactory(problem=ProblemFactory(number=number, slug=slug)))
    return suite


@pytest.fixture
def user() -> User:
    return UserFactory()


def send(user: User, suite: Suite, *tables: str | bytes, names: tuple[str, ...] = ("costs.csv",)) -> Upload:
    """Three files in two steps, and tables of costs."""
    sent = [Sent(path, io.BytesIO(f"def solution(x): return {i}".encode())) for i, path in enumerate(FILES)]
    for name, table in zip(names, tables, strict=True):
        sent.append(Sent(name, io.BytesIO(table.encode() if isinstance(table, str) else table)))
    upload = preview(user, sent, suite=suite)
    upload.refresh_from_db()
    return upload


def costs(upload: Upload) -> dict[tuple[int, int], tuple[str | None, int | None]]:
    return {
        (f["problem"], f["step"]): (f["cost_usd"], f["cost_tokens"])
        for f in upload.findings
        if f["status"] == "accepted"
    }


def about(upload: Upload) -> dict[str, Any]:
    (finding,) = [f for f in upload.findings if f["path"].endswith("csv")]
    return dict(finding)


def declaration(user: User, **fields: Any) -> Declaration:
    model = RankedModelFactory()
    MembershipFactory(team=model.team, user=user)
    given = {"track": Track.AGENTIC, "backend": "cuda", "precision": "fp32", "licence": "MIT", **fields}
    return Declaration(team=model.team, model=model, targets=[TargetFactory()], **given)


def test_each_step_gets_its_cost_and_the_run_keeps_it(user: User, suite: Suite) -> None:
    upload = send(user, suite, ALL)
    assert (about(upload)["status"], about(upload)["sentence"]) == ("used", "Says what 3 steps cost.")
    run = confirm(upload, declaration(user, cost_usd=Decimal("0.3")), user=user, suite=suite)
    kept = run.submissions.order_by("step", "problem__number").values_list("cost_usd", "cost_tokens")
    assert list(kept) == [(Decimal("0.1"), 1_000), (Decimal("0.2"), 2_000), (Decimal("0.000001"), 3_000)]


@pytest.mark.parametrize(
    "table",
    [
        "\ufeffStep, Problem ,COST_USD\r\n0,1,0.1\r\n\r\n0,13_gemm_allreduce,2e-1\r\n1,allreduce,0.00000149\r\n",
        'cost_tokens,cost_usd,problem,step\n,0.1,"1",0\n,.2,gemm_allreduce,0\n,0.000001,1,1\n',
    ],
)
def test_order_of_columns_spaces_names_and_exponents_do_not_matter(user: User, suite: Suite, table: str) -> None:
    found = costs(send(user, suite, table))
    assert found == {(1, 0): ("0.100000", None), (13, 0): ("0.200000", None), (1, 1): ("0.000001", None)}


def test_tables_with_gaps_are_taken_and_say_where_the_curve_ends(user: User, suite: Suite) -> None:
    upload = send(user, suite, "problem,step,cost_usd,cost_tokens\n1,0,0.1,1000.0\n13,0,0.2,\n")
    assert costs(upload) == {(1, 0): ("0.100000", 1000), (13, 0): ("0.200000", None), (1, 1): (None, None)}
    dollars, tokens = about(upload)["warnings"]
    assert dollars.startswith("1 of 3 files have no cost in US dollars, first problem 1 in step 1")
    assert tokens.startswith("2 of 3 files have no cost in tokens, first problem 13 in step 0")


def test_a_table_in_each_folder_is_as_good_as_one(user: User, suite: Suite) -> None:
    tables = "problem,step,cost_usd\n1,0,1\n13,0,2\n", "problem,step,cost_usd\n1,1,3\n"
    upload = send(user, suite, *tables, names=("step_0/costs.csv", "step_1/COSTS.csv"))
    assert [usd for usd, _ in costs(upload).values()] == ["1.000000", "3.000000", "2.000000"]


WRONG_LINES = {
    "13,7,1,1": "no accepted file of this upload answers problem 13 in step 7.",
    "99,0,1,1": "“99” is no problem of this suite; give its number or its name.",
    "1,-1,1,1": "the step “-1” is not a whole number from 0 to 9999.",
    "1,first,1,1": "the step “first” is not a whole number from 0 to 9999.",
    "1,0,-0.01,1": "cost_usd is “-0.01”; a cost is not negative. Leave it empty where it is not known.",
    "1,0,$2,1": "cost_usd is “$2”, which is not a number. Write US dollars such as 0.0123.",
    "1,0,NaN,1": "cost_usd is “NaN”, which is not a number. Write US dollars such as 0.0123.",
    "1,0,inf,1": "cost_usd is “inf”, which is not a number. Write US dollars such as 0.0123.",
    "1,0,1e999999999,1": "cost_usd is “1e999999999”; the limit for one step on one problem is 100,000 US dollars.",
    "1,0,100000.01,1": "cost_usd is “100000.01”; the limit for one step on one problem is 100,000 US dollars.",
    "1,0,1,-5": "cost_tokens is “-5”; a cost is not negative. Leave it empty where it is not known.",
    "1,0,1,1.5": "cost_tokens is “1.5”, which is not a whole number. Write tokens such as 18000.",
    "1,0,1,1000000000001": "the limit for one step on one problem is 1,000,000,000,000.",
    f"1,0,1,{'9' * 5000}": "the limit for one step on one problem is 1,000,000,000,000.",
    "1,0,1,18,000": "it does not have one value for each column.",
    "1,0": "it does not have one value for each column.",
    "1,1,5,5": "the cost of problem 1 in step 1 was given before; give it once.",
}


@pytest.mark.parametrize("line", WRONG_LINES, ids=lambda line: line[:20])
def test_a_wrong_line_is_named_and_harms_no_file(user: User, suite: Suite, line: str) -> None:
    upload = send(user, suite, f"problem,step,cost_usd,cost_tokens\n1,1,1,1\n{line}\n")
    finding = about(upload)
    assert (finding["status"], finding["code"], finding["line"]) == ("refused", "costs_line", 3)
    assert finding["sentence"].startswith("Line 3: ")
    assert WRONG_LINES[line] in finding["sentence"]
    assert finding["sentence"].endswith("None of its costs was taken.")
    assert costs(upload) == dict.fromkeys([(1, 0), (13, 0), (1, 1)], (None, None))


def test_many_wrong_lines_are_named_one_by_one_up_to_ten(user: User, suite: Suite) -> None:
    finding = about(send(user, suite, "problem,step,cost_usd\n" + "1,0,x\n" * 14))
    assert [text.partition(":")[0] for text in finding["warnings"][:-1]] == [f"Line {n}" for n in range(3, 12)]
    assert finding["warnings"][-1] == "4 more lines are wrong."


@pytest.mark.parametrize(
    ("table", "code", "part"),
    [
        ("problem,step\n1,0\n", "costs_columns", "its first line must be problem,step,cost_usd,cost_tokens"),
        ("problem,step,usd\n1,0,1\n", "costs_columns", "but is problem,step,usd."),
        ("problem;step;cost_usd\n1;0;1\n", "costs_columns", "but is problem;step;cost_usd."),
        ("problem,step,cost_usd,cost_usd\n1,0,1,1\n", "costs_columns", "its first line must be"),
        ('problem,step,cost_usd\n1,0,"1\n', "costs_columns", "No table of costs"),
        ("problem,step,cost_usd\n", "costs_empty", "no step"),
        (" \n", "empty", "The file is empty."),
        (b"problem,step\xff\n", "not_utf8", "Not encoded as UTF-8"),
    ],
)
def test_what_is_no_table_of_costs_is_said(user: User, suite: Suite, table: str | bytes, code: str, part: str) -> None:
    upload = send(user, suite, table)
    assert (about(upload)["status"], about(upload)["code"]) == ("refused", code)
    assert part in about(upload)["sentence"]
    assert len(costs(upload)) == 3


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=25, deadline=None)
@given(st.one_of(st.binary(max_size=80), st.text('015,.-e\n" x', max_size=60).map(str.encode)))
def test_whatever_the_table_holds_the_files_are_accepted(user: User, suite: Suite, body: bytes) -> None:
    for data in (body, b"problem,step,cost_usd,cost_tokens\n" + body):
        upload = send(user, suite, data)
        assert about(upload)["status"] in ("used", "refused")
        assert len(costs(upload)) == 3


@pytest.mark.parametrize(
    ("fields", "code", "part"),
    [
        ({"track": "single-shot"}, "steps_in_other_track", "track agentic"),
        ({"cost_usd": Decimal("0.2999")}, "cost_below_steps", "$0.2999, is below that of its steps"),
        ({"cost_tokens": 5_999}, "cost_below_steps", "5,999, are fewer than those of its steps in costs.csv, 6,000."),
    ],
)
def test_a_run_cannot_cost_less_than_its_steps(
    user: User, suite: Suite, fields: dict[str, Any], code: str, part: str
) -> None:
    upload = send(user, suite, ALL)
    with pytest.raises(IntakeError, match=part.replace("$", r"\$")) as error:
        confirm(upload, declaration(user, **fields), user=user, suite=suite)
    assert error.value.code == code
    upload.refresh_from_db()
    assert upload.state == UploadState.PREVIEWED


def test_costs_of_steps_belong_to_agents(user: User, suite: Suite) -> None:
    file = Sent("1_allreduce_cuda.py", io.BytesIO(b"def solution(x): return x"))
    table = Sent("costs.csv", io.BytesIO(b"problem,step,cost_usd\n1,0,0\n"))
    upload = preview(user, [file, table], suite=suite)
    with pytest.raises(IntakeError, match="belong to the track agentic") as error:
        confirm(upload, declaration(user, track="single-shot"), user=user, suite=suite)
    assert error.value.code == "costs_in_other_track"
    assert confirm(upload, declaration(user), user=user, suite=suite).submissions.get().cost_usd == 0
