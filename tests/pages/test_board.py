"""The leaderboard's selection, cache, exports, feed and picture."""

from __future__ import annotations

import csv
import gzip
import importlib.util
import io
import json
import re
from html import unescape
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils.http import urlencode
from PIL import Image

from leaderboard import pictures, scores, versions
from leaderboard.models import Evaluation, RankedModel, Verdict
from problems.models import Suite
from tests.factories import (
    RankedModelFactory,
    SuiteFactory,
    evaluated_run,
)
from tests.pages.boards import rich_board
from tests.pages.site import Site

RECOMPUTE = Path(__file__).resolve().parents[2] / "scripts" / "recompute.py"


def get(query: str = "", client: Client | None = None, **headers: str) -> Any:
    return (client or Client()).get(f"/?{query}", headers=headers)


def text(query: str = "") -> str:
    response = get(query)
    assert response.status_code == 200, query
    return re.sub(r"\s+", " ", unescape(response.content.decode()))


def names(query: str) -> list[str]:
    return re.findall(r'<th scope="row"><a href="/models/[^"]*">([\w ]+)<', text(query))


def row_of(name: str) -> str:
    page = text()
    return page[page.index(f">{name}</a>") :].partition("</tr>")[0]


def export(kind: str, query: str = "") -> Any:
    response = Client().get(f"{reverse('board-export', args=[kind])}?{query}")
    assert response.status_code == 200
    return b"".join(response.streaming_content)


@pytest.fixture
def rich(suite: Suite) -> Suite:
    rich_board(suite)
    return suite


# Selection ------------------------------------------------------------------------------------------------------------


def test_a_held_verdict_counts_nowhere(rich: Suite) -> None:
    assert ">0/4</a>" in row_of("Held")


def test_every_column_sorts_both_ways_and_ties_stay_in_order_of_rank(rich: Suite) -> None:
    by_rank = names("")[1:]  # the baseline is pinned
    assert by_rank[0] == "Alpha"
    assert names("sort=cost")[1:] == ["Gamma", "Alpha", "Delta", "Beta", "Held"], "without a cost: at the end, by rank"
    assert names("sort=-cost")[1:3] == ["Alpha", "Gamma"]
    assert names("sort=-model")[1:] == ["Held", "Gamma", "Delta", "Beta", "Alpha"]
    assert names("sort=correct")[-1] == "Alpha"
    assert names("sort=-at_k")[1] == "Delta", "the only one with samples"
    for column in ("team", "track", "backend", "date", "fast_1", "speedup", "utilisation", "compatible_speedup"):
        for query in (f"sort={column}", f"sort=-{column}"):
            assert sorted(names(query)[1:]) == sorted(by_rank), query
    assert names("sort=no_such_column") == names("")


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("backend=triton", {"Beta"}),
        ("weights=open", {"Beta"}),
        ("provenance=logs-attached", {"Gamma"}),
        ("track=multi-sample", {"Delta"}),
        ("until=2020-01-01", set()),
        ("since=2020-01-01&backend=cuda", {"Alpha"}),
    ],
)
def test_filters_keep_what_fits_and_the_baseline_stays(rich: Suite, query: str, kept: set[str]) -> None:
    assert set(names(query)) == {*kept, "Reference"}


def test_figures_of_a_part_are_over_its_problems_alone(rich: Suite) -> None:
    assert "over the 1 problem of type graph alone" in text("type=graph")
    assert "over the 3 problems of type tensor alone" in text("type=tensor&also=on")
    assert "over the 1 problem of type graph and difficulty 4 alone" in text("type=graph&difficulty=4")
    assert names("type=graph&sort=fast_1")[-1] in {"Beta", "Delta"}
    row = text("type=tensor&also=on&backend=cuda")
    assert "Tensor: 3 of 3 correct" in row
    assert ">3/3</a>" in row


def test_bad_dates_get_a_sentence_and_lose_nothing(rich: Suite) -> None:
    page = text("since=2026-02-01&until=2026-01-01&backend=cuda")
    assert "No day lies between 2026-02-01 and 2026-01-01" in page
    assert '<option value="cuda" selected>' in page
    assert "Enter a valid date." in text("since=yesterday")


def test_further_columns_are_shown_on_demand(rich: Suite) -> None:
    assert "PKB correct" not in text()
    page = text("columns=compatible&columns=more")
    for part in (
        "PKB correct",
        "PKB geomean",
        "Utilisation",
        "@4 75.0 % / 75.0 %",
        "by the public benchmark's own rule",
    ):
        assert part in page, part


def test_the_permalink_says_everything(rich: Suite) -> None:
    page = text("type=graph&sort=-cost&columns=more")
    link = re.search(r'<a href="([^"]*)" rel="bookmark"', page)
    assert link is not None
    asked = dict(part.split("=") for part in link[1].partition("?")[2].split("&"))
    assert asked == {
        "target": "cpu-gloo",
        "suite": rich.version,
        "type": "graph",
        "sort": "-cost",
        "columns": "more",
    }
    assert names(link[1].partition("?")[2]) == names("type=graph&sort=-cost")


def test_a_long_board_has_pages_and_each_row_its_place(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaderboard.pages.board.ROWS_PER_PAGE", 2)
    for number in range(5):
        evaluated_run(*["tie"] * number, suite=suite, model=RankedModelFactory(name=f"M{number}"))
    assert names("") == ["M4", "M3"]
    assert names("page=3") == names("page=99") == ["M0"]
    page = text("page=2")
    assert "3–4 of 5" in page
    assert f'rel="prev" href="?{urlencode({"target": "cpu-gloo", "suite": suite.version})}"' in page


def test_charts_come_with_their_tables_and_their_script_only_when_asked(rich: Suite) -> None:
    assert "plots.js" not in text()
    page = text("charts=on")
    for part in ("plots.js", "fast_p: how many", "Correct by type", "Correct by difficulty", "Correct against cost"):
        assert part in page, part
    assert page.count('class="same"') == 4
    assert "On the front" in page


# Cache ----------------------------------------------------------------------------------------------------------------


def test_a_second_visitor_costs_a_query_or_two_and_an_unchanged_page_one(rich: Suite) -> None:
    first = get()
    with CaptureQueriesContext(connection) as warm:
        assert get().status_code == 200
    assert len(warm) <= 3
    with CaptureQueriesContext(connection) as unchanged:
        response = get("", **{"If-None-Match": first["ETag"]})
    assert (response.status_code, response.content, len(unchanged)) == (304, b"", 1)


def test_a_new_verdict_is_on_the_page_at_once(rich: Suite) -> None:
    tag = get()["ETag"]
    assert ">0/4</a>" in row_of("Gamma")
    evaluation = Evaluation.objects.get(run__model__name="Gamma")
    Verdict.objects.filter(evaluation=evaluation).update(code="correct", decision="tie", speedup=1.0)
    scores.materialise(evaluation)
    response = get("", **{"If-None-Match": tag})
    assert response.status_code == 200
    assert ">2/4</a>" in row_of("Gamma")
    assert response["ETag"] != tag


def test_a_renamed_model_is_on_the_page_at_once(rich: Suite) -> None:
    get()
    model = RankedModel.objects.get(name="Alpha")
    model.name = "Omega"
    model.save()
    assert "Omega" in names("")


def test_who_is_signed_in_gets_a_page_of_their_own(site: Site) -> None:
    public = get()
    own = get("", site.client("owner"), **{"If-None-Match": public["ETag"]})
    assert own.status_code == 200
    assert "ETag" not in own.headers
    assert "Sign out" in own.content.decode()
    assert "Sign out" not in get().content.decode()
    assert "Cookie" in public["Vary"]


def test_what_was_mistyped_is_not_kept(rich: Suite) -> None:
    assert "Select a valid choice" in text("backend=abacus")
    assert "Select a valid choice" not in text()


def test_the_page_is_small_on_the_wire(suite: Suite) -> None:
    """A full page of a hundred rows is under 150 kB as it is sent."""
    evaluated_run("faster", "tie", "deadlock", suite=suite)
    page = get().content.decode()
    row = page[page.index("<tbody>") + 7 : page.index("</tbody>")]
    full = page.replace(row, "".join(row.replace("M", f"M{number}") for number in range(100)))
    assert len(gzip.compress(full.encode())) < 150_000
    answer = get("", **{"Accept-Encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"


# Exports --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recompute() -> ModuleType:
    spec = importlib.util.spec_from_file_location("recompute", RECOMPUTE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("query", ["", "type=tensor", "type=tensor&also=on", "difficulty=4", "track=multi-sample"])
def test_every_figure_is_recomputed_from_the_export(rich: Suite, recompute: ModuleType, query: str) -> None:
    compared, different = recompute.differences(json.loads(export("json", query)))
    assert different == []
    assert compared >= 40


def test_the_recomputation_notices_a_figure_that_is_wrong(rich: Suite, recompute: ModuleType) -> None:
    found = json.loads(export("json"))
    found["rows"][1]["speedup"] *= 1 + 1e-15
    found["rows"][2]["rank_high"] += 1
    _, different = recompute.differences(found)
    assert [line.split(": ")[1].split()[0] for line in different] == ["speedup", "rank_high"]


def test_exports_hold_the_rows_of_the_page_in_its_order(rich: Suite) -> None:
    query = "sort=-model&since=2020-01-01"
    shown = names(query)
    lines = list(csv.DictReader(io.StringIO(export("csv", query).decode())))
    table = pq.read_table(io.BytesIO(export("parquet", query)))
    rows = json.loads(export("json", query))["rows"]
    assert [line["model"] for line in lines] == table["model"].to_pylist() == [r["model"] for r in rows] == shown
    assert [line["speedup"] for line in lines] == [repr(row["speedup"]) for row in rows]
    assert table["speedup"].to_pylist() == [row["speedup"] for row in rows]
    assert table["outcomes"].to_pylist() == [row["outcomes"] for row in rows]
    assert json.loads(table.schema.metadata[b"pkb"])["problems"][1]["also"] == ["tensor"]


def test_exports_span_pages_and_portions(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaderboard.exports.CHUNK", 2)
    for _ in range(5):
        evaluated_run("tie", suite=suite)
    assert export("csv").count(b"\n") == 6
    assert len(json.loads(export("json"))["rows"]) == 5
    assert pq.read_table(io.BytesIO(export("parquet"))).num_rows == 5


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_an_empty_board_exports_an_empty_table(suite: Suite, kind: str) -> None:
    data = export(kind)
    assert {"csv": data.count(b"\n") - 1}.get(kind, 0) == 0
    if kind == "json":
        assert json.loads(data)["rows"] == []
    if kind == "parquet":
        assert pq.read_table(io.BytesIO(data)).num_rows == 0


def test_an_export_refuses_what_the_page_would_mend(rich: Suite) -> None:
    response = Client().get(f"{reverse('board-export', args=['csv'])}?backend=abacus")
    assert response.status_code == 400
    assert "abacus" in response.content.decode()
    assert Client().get(reverse("board-export", args=["xls"])).status_code == 404


def test_a_model_under_an_alias_is_exported_under_it(rich: Suite) -> None:
    model = RankedModel.objects.get(name="Alpha")
    model.alias = "Anonymous 7"
    model.save()
    for kind in ("csv", "json", "parquet"):
        data = export(kind)
        assert b"Anonymous 7" in data
        assert b"Alpha" not in data


def test_exports_say_when_they_are_unchanged(rich: Suite) -> None:
    address = reverse("board-export", args=["json"])
    tag = Client().get(address)["ETag"]
    assert Client().get(address, headers={"If-None-Match": tag}).status_code == 304
    versions.bump()
    assert Client().get(address, headers={"If-None-Match": tag}).status_code == 200


# Feed and picture -----------------------------------------------------------------------------------------------------


def test_the_feed_has_the_newest_results_of_the_selection(rich: Suite) -> None:
    response = Client().get(f"{reverse('board-feed')}?backend=triton")
    feed = ElementTree.fromstring(response.content)  # noqa: S314 (our own)
    atom = "{http://www.w3.org/2005/Atom}"
    assert feed.tag == f"{atom}feed"
    entries = feed.findall(f"{atom}entry")
    assert [entry.findtext(f"{atom}title") for entry in entries] == ["Beta (agentic, Triton)"]
    link = entries[0].find(f"{atom}link")
    assert link is not None
    assert re.fullmatch(r"http://localhost:8000/runs/\w+/\?on=\w+", link.attrib["href"])
    assert "2 of 4 problems correct" in (entries[0].findtext(f"{atom}summary") or "")


def test_the_picture_is_drawn_from_the_rows_and_kept(rich: Suite) -> None:
    address = reverse("board-picture")
    first = Client().get(address)
    image = Image.open(io.BytesIO(first.content))
    assert (image.format, image.size) == ("PNG", (1200, 630))
    for letter in "×éЖΩ":  # the font has what names and figures are written in
        assert pictures._font(20).getmask(letter).getbbox() != pictures._font(20).getmask("\uffff").getbbox(), letter
    with CaptureQueriesContext(connection) as again:
        assert Client().get(address).content == first.content
    assert len(again) <= 3
    assert Client().get(f"{address}?backend=triton").content != first.content
    assert 'property="og:image" content="http://localhost:8000/leaderboard.png?target=cpu-gloo' in text()


def test_a_site_without_anything_still_answers(db: None) -> None:
    for route, arguments in (("board-picture", []), ("board-feed", []), ("board-export", ["json"])):
        assert Client().get(reverse(route, args=arguments)).status_code == 200
    SuiteFactory(size=0)
    assert "No run is ranked here yet" in text()
