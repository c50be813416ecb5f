"""A submission: its page, its live part, its file."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from leaderboard import traces
from leaderboard.access import source_for_viewer, submission_for_viewer
from leaderboard.models import Artifact, ArtifactKind
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


@require_safe
def submission_trace(request: HttpRequest, submission_id: str) -> HttpResponse:
    """The trace of the rank ``rank`` in the evaluation ``on``, for those who may read the source: it names kernels."""
    submission = source_for_viewer(request.user, submission_id)
    found = Artifact.objects.filter(
        attempt__submission=submission,
        attempt__evaluation__public_id=request.GET.get("on", ""),
        attempt__verdict__isnull=False,
        kind=ArtifactKind.TRACE,
        name=f"rank {request.GET.get('rank', '')}",
    )
    artifact = found.select_related("attempt__submission__problem").first()
    path = traces.path_of(artifact) if artifact else None
    if artifact is None or path is None:
        raise Http404
    response = HttpResponse(path.read_bytes(), content_type=artifact.content_type)  # a few megabytes at most
    response.headers["Content-Disposition"] = f'attachment; filename="{traces.file_name(artifact)}"'
    return response


def _page(request: HttpRequest, submission_id: str) -> SubmissionPage:
    submission = submission_for_viewer(request.user, submission_id)
    return reading.read(submission, request.user, request.GET.get("on", ""), request.GET.get("rank", ""))
