"""Hardware, workers, and the way from a run to its scores."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from unfold.admin import TabularInline

from leaderboard import lifecycle, workers
from leaderboard.admin.base import Curated, ReasonForm, Record, Verb, apply
from leaderboard.models import (
    Artifact,
    Attempt,
    Evaluation,
    EvaluationScore,
    ScoreVersion,
    Target,
    TypeScore,
    Verdict,
    Worker,
    WorkerState,
)


@admin.register(Target)
class TargetAdmin(Curated):
    list_display = ("name", "title", "device", "world_size", "queue", "is_ranked", "is_open", "order")
    list_filter = ("device", "is_ranked", "is_open")
    search_fields = ("name", "title", "gpu")


@admin.register(Worker)
class WorkerAdmin(Record):
    list_display = ("name", "target", "state", "registered_at", "last_seen_at")
    list_filter = ("state", "target")
    list_select_related = ("target",)
    search_fields = ("name",)
    action_form = ReasonForm
    actions = ("drain", "quarantine", "activate")

    @admin.action(description="Drain: finish what it holds, give it nothing new", permissions=["change_state"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        apply(request, queryset, "workers drained", _to(WorkerState.DRAINED))

    @admin.action(description="Quarantine: give it nothing until somebody has looked", permissions=["change_state"])
    def quarantine(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        apply(request, queryset, "workers quarantined", _to(WorkerState.QUARANTINED))

    @admin.action(description="Activate", permissions=["change_state"])
    def activate(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        apply(request, queryset, "workers activated", _to(WorkerState.ACTIVE))

    def has_change_state_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("leaderboard.change_worker"))


def _to(state: WorkerState) -> Verb:
    return lambda worker, request, reason: workers.set_state(worker, state, request.user, reason=reason)


@admin.register(Evaluation)
class EvaluationAdmin(Record):
    list_display = ("public_id", "run", "target", "suite", "protocol_version", "state", "created_at", "finished_at")
    list_filter = ("state", "target", "suite")
    list_select_related = ("run__model", "target", "suite")
    search_fields = ("public_id", "run__public_id", "run__model__name")
    date_hierarchy = "created_at"
    action_form = ReasonForm
    actions = ("cancel",)

    @admin.action(description="Stop the chosen evaluations", permissions=["change_state"])
    def cancel(self, request: HttpRequest, queryset: QuerySet[Evaluation]) -> None:
        apply(request, queryset, "evaluations stopped", _cancel)

    def has_change_state_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("leaderboard.change_evaluation"))


def _cancel(evaluation: Evaluation, request: HttpRequest, reason: str) -> bool:
    return lifecycle.cancel_evaluation(evaluation, request.user, reason=reason)


@admin.register(Attempt)
class AttemptAdmin(Record):
    list_display = ("id", "submission", "number", "state", "worker", "phase", "created_at", "leased_at", "finished_at")
    list_filter = ("state", "phase", "evaluation__target")
    list_select_related = ("submission", "worker")
    search_fields = ("id", "submission__public_id", "submission__run__public_id", "host")


@admin.register(Verdict)
class VerdictAdmin(Record):
    list_display = ("submission", "code", "decision", "standing", "speedup", "failure_id", "seconds", "created_at")
    list_filter = ("code", "decision", "standing", "evaluation__target")
    list_select_related = ("submission", "evaluation")
    search_fields = ("submission__public_id", "submission__run__public_id", "failure_id", "message")
    date_hierarchy = "created_at"


@admin.register(Artifact)
class ArtifactAdmin(Record):
    list_display = ("attempt", "kind", "name", "size", "created_at")
    list_filter = ("kind",)
    search_fields = ("attempt__id", "sha256")


class TypeScoreInline(TabularInline):
    model = TypeScore
    extra = 0
    can_delete = False
    max_num = 0
    readonly_fields = ("type", "view", "problems", "correct", "faster", "correctness_rate", "fast_1", "speedup")
    fields = readonly_fields


@admin.register(EvaluationScore)
class EvaluationScoreAdmin(Record):
    list_display = (
        "evaluation",
        "correct",
        "problems",
        "fast_1",
        "speedup",
        "unjudged",
        "scoring_version",
        "updated_at",
    )
    list_filter = ("evaluation__target", "evaluation__suite", "scoring_version")
    list_select_related = ("evaluation__run__model", "evaluation__target")
    search_fields = ("evaluation__public_id", "evaluation__run__public_id", "evaluation__run__model__name")
    inlines = (TypeScoreInline,)


@admin.register(ScoreVersion)
class ScoreVersionAdmin(Record):
    list_display = ("name", "token", "changed_at")
