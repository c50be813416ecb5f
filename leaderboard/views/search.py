"""Search."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard.pages.search import search


@require_safe
def search_page(request: HttpRequest) -> HttpResponse:
    found = search(request.GET.get("q", ""), request.user)
    return render(request, "leaderboard/search.html", {"found": found}, status=400 if found.error else 200)
