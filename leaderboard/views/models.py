"""Models: the list and one of them."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard import versions
from leaderboard.access import model_for_viewer
from leaderboard.pages import models as reading
from leaderboard.pages import types
from leaderboard.views.conditional import versioned


@require_safe
@versioned(versions.BOARD)
def model_list(request: HttpRequest, *, version: str | None) -> HttpResponse:
    lines = versions.cached(version, "models", lambda: reading.lines())
    return render(request, "leaderboard/models.html", {"section": "models", "lines": lines})


@require_safe
def model_page(request: HttpRequest, slug: str) -> HttpResponse:
    page = reading.read(model_for_viewer(request.user, slug), request.user)
    return render(request, "leaderboard/model.html", {"section": "models", "page": page, "heads": types.heads()})
