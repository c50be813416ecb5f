"""Two to four runs side by side."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard.pages import compare as reading
from leaderboard.pages.compare import CompareError


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    """``?run=…&run=…``; with fewer than two runs the form asks for more. An id that is hidden looks like none."""
    ids = [text.strip() for text in request.GET.getlist("run") if text.strip()]
    context = {"ids": ids, "fields": [*ids, *[""] * reading.AT_MOST][: reading.AT_MOST], "at_most": reading.AT_MOST}
    if len(ids) < reading.AT_LEAST:
        return render(request, "leaderboard/compare.html", context)
    on, problem = (request.GET.get(name, "") for name in ("on", "problem"))
    try:
        page = reading.read(ids, request.user, on=on, problem=problem)
    except CompareError as error:
        status = 404 if error.missing else 400
        return render(request, "leaderboard/compare.html", {**context, "error": str(error)}, status=status)
    return render(request, "leaderboard/compare.html", {**context, "page": page})
