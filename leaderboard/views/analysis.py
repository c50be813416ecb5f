"""Analyses over the leading runs of a board."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard import versions
from leaderboard.models import Target
from leaderboard.pages import analysis as reading
from leaderboard.pages import board
from leaderboard.pages.leading import LEADING
from leaderboard.views.conditional import versioned
from problems.models import Suite


@require_safe
@versioned(versions.BOARD)
def analysis(request: HttpRequest, *, version: str | None) -> HttpResponse:
    """Of the target ``?target=``, else of the one that the leaderboard begins with."""
    asked = request.GET.get("target", "")
    targets = list(Target.objects.all())
    target = next((t for t in targets if t.name == asked), None) if asked else board.default_target()
    suite = Suite.objects.current()
    page = None
    if target and suite:
        key = f"analysis {target.pk} {suite.pk}"
        page = versions.cached(version, key, lambda: reading.read(target, suite))
    context = {
        "section": "analysis",
        "target": target,
        "asked": asked,
        "suite": suite,
        "targets": [t for t in targets if t.is_open or t == target],
        "page": page,
        "leading": LEADING,
    }
    return render(request, "leaderboard/analysis.html", context)
