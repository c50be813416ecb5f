"""A submission: its page, its live part, its file."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard.access import source_for_viewer, submission_for_viewer
from leaderboard.pages import submission as reading
from leaderboard.pages.submission import SubmissionPage


@require_safe
def submission_page(request: HttpRequest, submission_id: str) -> HttpResponse:
    return render(request, "leaderboard/submission.html", {"page": _page(request, submission_id)})


@require_safe
def submission_live(request: HttpRequest, submission_id: str) -> HttpResponse:
    """The verdict's part of the page. Once there is a verdict, the browser fetches the whole page."""
    page = _page(request, submission_id)
    response = render(request, "leaderboard/_verdict.html", {"page": page})
    if not page.live:
        response["HX-Refresh"] = "true"
    return response


@require_safe
def submission_source(request: HttpRequest, submission_id: str) -> HttpResponse:
    """The file as it was sent, as a download: never rendered by the browser on our address."""
    submission = source_for_viewer(request.user, submission_id)
    response = HttpResponse(submission.source.text, content_type="text/plain; charset=utf-8")
    response.headers["Content-Disposition"] = f'attachment; filename="{submission.problem.slug}.py"'
    return response


def _page(request: HttpRequest, submission_id: str) -> SubmissionPage:
    submission = submission_for_viewer(request.user, submission_id)
    return reading.read(submission, request.user, request.GET.get("on", ""), request.GET.get("rank", ""))
