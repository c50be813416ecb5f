"""A run: its page, its live part, and what its team may do with it."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from leaderboard import exports_steps, lifecycle
from leaderboard.access import evaluation_of, run_for_member, run_for_retry, run_for_viewer
from leaderboard.forms import posted
from leaderboard.forms.runs import WithdrawForm
from leaderboard.pages import run as reading
from leaderboard.views.downloads import as_file

STOP_POLLING = 286  # htmx swaps the answer in and asks no more


@require_safe
def run_page(request: HttpRequest, run_id: str) -> HttpResponse:
    run = run_for_viewer(request.user, run_id)
    return render(request, "leaderboard/run.html", {"page": reading.read(run, request.user, request.GET.get("on", ""))})


@require_safe
def run_live(request: HttpRequest, run_id: str) -> HttpResponse:
    """The part of the page that changes. Once nothing can, the answer ends the polling and fetches the page anew, with
    its charts.
    """
    run = run_for_viewer(request.user, run_id)
    page = reading.read(run, request.user, request.GET.get("on", ""))
    response = render(request, "leaderboard/_run_live.html", {"page": page}, status=200 if page.live else STOP_POLLING)
    if not page.live:
        response["HX-Refresh"] = "true"
    return response


@require_safe
def run_steps(request: HttpRequest, run_id: str, kind: str) -> HttpResponse:
    """The steps of an agentic run as a file."""
    run = run_for_viewer(request.user, run_id)
    writer = exports_steps.WRITERS.get(kind)
    score = reading.score_with_steps(run, request.user, request.GET.get("on", ""))
    if writer is None or score is None:
        raise Http404
    response = HttpResponse(writer.write(score), content_type=writer.content_type)
    return as_file(response, f"run-{run.public_id}-steps", kind)


@login_required
@require_http_methods(["GET", "POST"])
def run_cancel(request: HttpRequest, run_id: str) -> HttpResponse:
    run = run_for_member(request.user, run_id)
    evaluation = evaluation_of(run, (request.POST or request.GET).get("evaluation", ""))
    if request.method != "POST":
        return render(request, "leaderboard/run_cancel.html", {"run": run, "evaluation": evaluation})
    if lifecycle.cancel_evaluation(evaluation, request.user, reason="stopped by the team"):
        messages.success(request, "The evaluation was stopped. Verdicts that were there already remain.")
    else:
        messages.info(request, "The evaluation was already over; nothing was changed.")
    return redirect("run", run.public_id)


@login_required
@require_POST
def run_retry(request: HttpRequest, run_id: str) -> HttpResponse:
    """Try again what failed for reasons of ours, in one evaluation."""
    run = run_for_retry(request.user, run_id)
    evaluation = evaluation_of(run, request.POST.get("evaluation", ""))
    number = lifecycle.retry_failed(evaluation, request.user)
    if number:
        files = "1 file is" if number == 1 else f"{number} files are"
        messages.success(
            request, f"{files} in the queue again. That costs the team nothing beyond a normal evaluation."
        )
    else:
        messages.info(
            request, "There was nothing to try again: no file failed for reasons of ours, or the run is over."
        )
    return redirect(f"{reverse('run', args=[run.public_id])}?on={evaluation.public_id}")


@login_required
@require_http_methods(["GET", "POST"])
def run_withdraw(request: HttpRequest, run_id: str) -> HttpResponse:
    run = run_for_member(request.user, run_id)
    form = WithdrawForm(posted(request))
    if not form.is_valid():
        return render(request, "leaderboard/run_withdraw.html", {"run": run, "form": form})
    if lifecycle.withdraw_run(run, request.user, reason=form.cleaned_data["reason"]):
        messages.success(request, "The run was withdrawn. This page stays as its tombstone.")
    else:
        messages.info(request, f"The run was already {run.get_state_display().lower()}; nothing was changed.")
    return redirect("run", run.public_id)
