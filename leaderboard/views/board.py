"""The leaderboard: its page, its exports and its picture, all of one selection."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, StreamingHttpResponse
from django.shortcuts import render
from django.template.loader import render_to_string
from django.urls import reverse
from django.views.decorators.http import require_safe

from leaderboard import charts_board, exports, pictures, versions
from leaderboard.feeds import BoardFeed
from leaderboard.forms.board import BoardFilter
from leaderboard.models import Target
from leaderboard.pages import board, types
from leaderboard.pages.board import Board
from leaderboard.pages.selection import Selection
from leaderboard.scoring import RANKING_RULE
from leaderboard.views.conditional import versioned
from leaderboard.views.downloads import as_file
from problems.models import Suite

# Key, head, whether numeric, and the group of columns that it belongs to ("" is always shown).
COLUMNS = (
    ("rank", "Rank", True, ""),
    ("model", "Model", False, ""),
    ("team", "Team", False, ""),
    ("track", "Track", False, ""),
    ("backend", "Backend", False, ""),
    ("correct", "Correct", False, ""),
    ("fast_1", "fast_1", True, ""),
    ("speedup", "Speedup", True, ""),
    ("correct_only", "Speedup, correct only", True, "more"),
    ("utilisation", "Utilisation", True, "more"),
    ("at_k", "pass@k / fast_1@k", True, "more"),
    ("compatible_correct", "PKB correct", True, "compatible"),
    ("compatible_faster", "PKB ratio > 1", True, "compatible"),
    ("compatible_speedup", "PKB geomean", True, "compatible"),
    ("types", "By type", False, ""),
    ("cost", "Cost", True, ""),
    ("date", "Date", False, ""),
)
# A first click on one of these heads shows the smallest first; on all others the largest.
SMALLEST_FIRST = {"rank", "model", "team", "track", "backend", "cost"}


@dataclass(frozen=True)
class Column:
    """A head of the table: ``href`` sorts by it, or turns the order round; ``order`` as aria-sort wants it."""

    key: str
    label: str
    numeric: bool
    href: str = ""
    order: str = ""


@require_safe
@versioned(versions.BOARD)
def leaderboard(request: HttpRequest, *, version: str | None) -> HttpResponse:
    form = _form(request, version)
    selection = form.selection
    key = f"page:{selection.query()}"
    parts = _parts(form, selection) if form.errors else versions.cached(version, key, lambda: _parts(form, selection))
    return render(request, "leaderboard/board.html", {"section": "leaderboard", "site": settings.SITE_URL, **parts})


@require_safe
@versioned(versions.BOARD)
def board_export(request: HttpRequest, kind: str, *, version: str | None) -> HttpResponseBase:
    """The rows of the selection as a file; all of them, whatever the page."""
    writer = exports.WRITERS.get(kind)
    if writer is None:
        raise Http404
    form = _form(request, version)
    selection = form.selection
    if form.errors:
        return HttpResponse(_sentences(form), status=400, content_type="text/plain; charset=utf-8")
    response = StreamingHttpResponse(writer.stream(board.read(selection)), content_type=writer.content_type)
    name = "-".join(filter(None, ("leaderboard", selection.target and selection.target.name, selection.type)))
    return as_file(response, name, kind)


@require_safe
@versioned(versions.BOARD)
def board_picture(request: HttpRequest, *, version: str | None) -> HttpResponse:
    """The first rows of the selection as a picture, for previews of links."""
    selection = _form(request, version).selection
    picture = versions.cached(version, f"picture:{selection.query()}", lambda: pictures.of_board(board.read(selection)))
    return HttpResponse(picture, content_type="image/png")


@require_safe
@versioned(versions.BOARD)
def board_feed(request: HttpRequest, *, version: str | None) -> HttpResponse:
    """The newest results of the selection."""
    selection = _form(request, version).selection
    return BoardFeed()(request, selection=selection)


def _form(request: HttpRequest, version: str | None) -> BoardFilter:
    """The selection of the address, with target and suite filled in where it says nothing of them."""
    data = request.GET.copy()
    if "target" not in data or "suite" not in data:
        target, suite = versions.cached(version, "default of the board", _defaults)
        data.setdefault("target", target)
        data.setdefault("suite", suite)
    return BoardFilter(data)


def _defaults() -> tuple[str, str]:
    target: Target | None = board.default_target()
    suite = Suite.objects.current()
    return target.name if target else "", suite.version if suite else ""


def _parts(form: BoardFilter, selection: Selection) -> dict[str, Any]:
    """What the page shows of the selection: its body as HTML, title, description and address of the picture."""
    found = board.read(selection)
    rows = found.rows_of_page()
    shown_charts = charts_board.charts(found, rows) if selection.charts and rows else []
    context = {
        "form": form,
        "selection": selection,
        "board": found,
        "rows": rows,
        "baselines": found.baselines(),
        "columns": _columns(selection),
        "heads": types.heads(),
        "legend": types.legend(),
        "rule": RANKING_RULE,
        "published": board.published_models(),
        "charts": shown_charts,
        "pager": _pager(found),
        "links": _links(selection),
    }
    return {
        "body": render_to_string("leaderboard/_board.html", context),
        "target": selection.target,
        "as_of": found.as_of,
        "charts": bool(shown_charts),
        "picture": f"{reverse('board-picture')}?{selection.query(page=1, charts=False)}",
        "feed": f"{reverse('board-feed')}?{selection.query(page=1, charts=False, sort='rank')}",
        "permalink": f"{reverse('leaderboard')}?{selection.query()}",
    }


def _links(selection: Selection) -> dict[str, Any]:
    query = selection.query(page=1, charts=False)
    return {
        "permalink": f"{reverse('leaderboard')}?{selection.query()}",
        "charts": f"{reverse('leaderboard')}?{selection.query(charts=not selection.charts)}",
        "feed": f"{reverse('board-feed')}?{query}",
        "exports": [
            (name, f"{reverse('board-export', args=[kind])}?{query}")
            for kind, name in (("csv", "CSV"), ("json", "JSON"), ("parquet", "Parquet"))
        ],
    }


def _pager(found: Board) -> dict[str, Any]:
    page, size = found.page, board.ROWS_PER_PAGE
    return {
        "first": (page - 1) * size + 1,
        "last": min(page * size, len(found.order)),
        "previous": found.selection.query(page=page - 1) if page > 1 else "",
        "next": found.selection.query(page=page + 1) if page < found.pages else "",
    }


def _columns(selection: Selection) -> list[Column]:
    return [
        _column(selection, key, label, numeric)
        for key, label, numeric, group in COLUMNS
        if not group or group in selection.columns
    ]


def _column(selection: Selection, key: str, label: str, numeric: bool) -> Column:
    if key not in board.sorts(selection):
        return Column(key, label, numeric)
    order = {key: "ascending", f"-{key}": "descending"}.get(selection.sort, "")
    smallest = order == "descending" or (not order and key in SMALLEST_FIRST)
    query = selection.query(sort=key if smallest else f"-{key}", page=1)
    return Column(key, label, numeric, href=f"?{query}", order=order)


def _sentences(form: BoardFilter) -> str:
    return "".join(f"{name}: {' '.join(errors)}\n" for name, errors in form.errors.items())
