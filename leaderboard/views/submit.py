"""Submit: send files, look at the preview, declare and confirm. Nothing is judged before the confirmation."""

from __future__ import annotations

from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import http_date
from django.views.decorators.http import require_http_methods

from leaderboard import intake
from leaderboard.access import upload_for_owner
from leaderboard.forms import posted
from leaderboard.forms.submit import DeclarationForm, UploadForm
from leaderboard.models import Team, Upload, UploadState
from leaderboard.pages import models
from leaderboard.pages import preview as reading
from problems.models import Suite

UNPROCESSABLE, TOO_MANY = 422, 429


@login_required
@require_http_methods(["GET", "POST"])
def submit(request: HttpRequest) -> HttpResponse:
    suite = Suite.objects.current()
    form = UploadForm(request.POST, request.FILES) if request.method == "POST" else UploadForm()
    if suite is not None and form.is_bound and form.is_valid():
        upload = intake.preview(request.user, form.sent(), suite=suite)
        return redirect("preview", upload.pk)
    context = {
        "section": "submit",
        "form": form,
        "suite": suite,
        "teams": Team.objects.of(request.user),
        "has_model": models.of_user(request.user).exists(),
    }
    return render(request, "leaderboard/submit.html", context, status=UNPROCESSABLE if form.errors else 200)


@login_required
@require_http_methods(["GET", "POST"])
def preview(request: HttpRequest, upload_id: UUID) -> HttpResponse:
    upload = upload_for_owner(request.user, upload_id)
    suite = Suite.objects.current()
    if upload.state == UploadState.CONFIRMED:
        return redirect("run", upload.run.public_id)
    if suite is None:
        return redirect("submit")
    form = DeclarationForm(posted(request), user=request.user, initial=reading.first_guess(upload))
    limit: intake.LimitReached | None = None
    if form.is_valid():
        try:
            run = intake.confirm(upload, form.declaration(), user=request.user, suite=suite)
        except intake.IntakeError as error:
            form.add_error(None, str(error))
            limit = error if isinstance(error, intake.LimitReached) else None
        else:
            return redirect("run", run.public_id)
    response = render(request, "leaderboard/preview.html", _preview_context(request, upload, suite, form))
    if form.errors:
        response.status_code = TOO_MANY if limit else UNPROCESSABLE
    if limit and limit.retry_at:
        response.headers["Retry-After"] = http_date(limit.retry_at.timestamp())
    return response


def _preview_context(request: HttpRequest, upload: Upload, suite: Suite, form: DeclarationForm) -> dict[str, object]:
    return {
        "section": "submit",
        "page": reading.read(upload, suite),
        "suite": suite,
        "form": form,
        "teams": Team.objects.of(request.user),
        "has_model": models.of_user(request.user).exists(),
    }
