"""Whether the machinery runs."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from leaderboard.pages import status as reading


@require_safe
def status(request: HttpRequest) -> HttpResponse:
    now = timezone.now()
    return render(request, "leaderboard/status.html", {"status": reading.read(now), "now": now})
