"""What teams sent."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from leaderboard import lifecycle
from leaderboard.admin.base import ReasonForm, Record, apply
from leaderboard.models import Run, SourceFile, Submission, Upload


@admin.register(Run)
class RunAdmin(Record):
    list_display = ("public_id", "model", "team", "track", "backend", "precision", "state", "visibility", "created_at")
    list_filter = ("state", "track", "backend", "precision", "visibility", "provenance")
    list_select_related = ("model", "team")
    search_fields = ("public_id", "model__name", "team__name")
    date_hierarchy = "created_at"
    action_form = ReasonForm
    actions = ("cancel", "withdraw", "disqualify", "reinstate")

    @admin.action(description="Stop the evaluations of the chosen runs", permissions=["change_state"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        apply(request, queryset, "runs stopped", _cancel)

    @admin.action(description="Withdraw the chosen runs for their teams", permissions=["change_state"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        apply(request, queryset, "runs withdrawn", _withdraw)

    @admin.action(description="Disqualify the chosen runs; the reason is shown", permissions=["change_state"])
    def disqualify(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        apply(request, queryset, "runs disqualified", _disqualify)

    @admin.action(description="Undo the disqualification of the chosen runs", permissions=["change_state"])
    def reinstate(self, request: HttpRequest, queryset: QuerySet[Run]) -> None:
        apply(request, queryset, "runs reinstated", _reinstate)

    def has_change_state_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("leaderboard.change_run"))


def _cancel(run: Run, request: HttpRequest, reason: str) -> bool:
    return lifecycle.cancel_run(run, request.user, reason=reason) > 0


def _withdraw(run: Run, request: HttpRequest, reason: str) -> bool:
    return lifecycle.withdraw_run(run, request.user, reason=reason)


def _disqualify(run: Run, request: HttpRequest, reason: str) -> bool:
    return lifecycle.disqualify_run(run, request.user, reason=reason)


def _reinstate(run: Run, request: HttpRequest, reason: str) -> bool:
    return lifecycle.reinstate_run(run, request.user, reason=reason)


@admin.register(Submission)
class SubmissionAdmin(Record):
    list_display = ("public_id", "file_name", "problem", "run", "sample", "step", "created_at")
    list_filter = ("problem__type",)
    list_select_related = ("problem", "run__model")
    search_fields = ("public_id", "file_name", "run__public_id", "problem__slug", "source__sha256")


@admin.register(Upload)
class UploadAdmin(Record):
    list_display = ("id", "user", "state", "files", "created_at", "confirmed_at")
    list_filter = ("state",)
    list_select_related = ("user",)
    search_fields = ("id", "user__username")
    exclude = ("sources",)

    @admin.display(description="Files")
    def files(self, upload: Upload) -> Any:
        return len(upload.findings)


@admin.register(SourceFile)
class SourceFileAdmin(Record):
    list_display = ("sha256", "size", "created_at")
    search_fields = ("sha256",)
