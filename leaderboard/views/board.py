"""The leaderboard."""

from __future__ import annotations

from dataclasses import dataclass

from django.core.paginator import Paginator
from django.http import HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard.forms.board import BoardFilter
from leaderboard.models import Target
from leaderboard.pages import board, types
from leaderboard.scoring import RANKING_RULE
from problems.models import Problem, Suite

ROWS_PER_PAGE = 100
COLUMNS = (
    ("rank", "Rank", True),
    ("model", "Model", False),
    ("team", "Team", False),
    ("track", "Track", False),
    ("backend", "Backend", False),
    ("correct", "Correct", False),
    ("fast_1", "fast_1", True),
    ("speedup", "Speedup", True),
    ("types", "By type", False),
    ("cost", "Cost", True),
    ("date", "Date", False),
)
BEST_LAST = {"correct", "fast_1", "speedup", "date"}  # first click on these heads shows the largest first


@dataclass(frozen=True)
class Column:
    """A head of the table: ``href`` sorts by it, or turns the order round; ``order`` as aria-sort wants it."""

    key: str
    label: str
    numeric: bool
    sort: bool
    href: str = ""
    order: str = ""


@require_safe
def leaderboard(request: HttpRequest) -> HttpResponse:
    data = _with_defaults(request.GET)
    chosen = BoardFilter(data, queryset=board.public_scores())
    scores = chosen.qs
    target, suite = (chosen.form.cleaned_data.get(name) for name in ("target", "suite"))
    sort = data.get("sort", "rank")
    rows = board.rows(scores.ranked(), type_slug=chosen.chosen_type, sort=sort)
    context = {
        "section": "leaderboard",
        "filter": chosen,
        "filtered": bool(set(request.GET) - {"sort", "page"}),
        "target": target,
        "suite": suite,
        "count": Problem.objects.in_suite(suite).count() if suite else 0,
        "sort": sort,
        "columns": _columns(data, sort),
        "heads": types.heads(),
        "rows": Paginator(rows, ROWS_PER_PAGE).get_page(data.get("page")),
        "baselines": board.baselines(scores.baselines(), type_slug=chosen.chosen_type),
        "as_of": board.as_of(rows),
        "rule": RANKING_RULE,
        "chosen_type": chosen.chosen_type,
        "published": board.published_models(),
    }
    return render(request, "leaderboard/board.html", context)


def _with_defaults(given: QueryDict) -> QueryDict:
    """The selection of the address, with target and suite filled in where it says nothing of them."""
    data = given.copy()
    if "target" not in data:
        target: Target | None = board.default_target()
        data["target"] = target.name if target else ""
    if "suite" not in data:
        suite = Suite.objects.current()
        data["suite"] = suite.version if suite else ""
    return data


def _columns(data: QueryDict, sort: str) -> list[Column]:
    return [_column(data, sort, *column) for column in COLUMNS]


def _column(data: QueryDict, sort: str, key: str, label: str, numeric: bool) -> Column:
    if key not in board.SORTS:
        return Column(key, label, numeric, sort=False)
    order = {key: "ascending", f"-{key}": "descending"}.get(sort, "")
    following = data.copy()
    following.pop("page", None)
    following["sort"] = key if order == "descending" or (not order and key not in BEST_LAST) else f"-{key}"
    return Column(key, label, numeric, sort=True, href=f"?{following.urlencode()}", order=order)
