"""Hardware, workers, and the way from a run to its scores."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import OuterRef, QuerySet, Subquery
from django.http import HttpRequest
from unfold.admin import TabularInline

from leaderboard import canaries, lifecycle, workers
from leaderboard.admin.base import Curated, ReasonForm, Record, Verb, apply
from leaderboard.figures import ratio_text
from leaderboard.models import (
    Artifact,
    Attempt,
    Canary,
    Evaluation,
    EvaluationScore,
    ScoreVersion,
    Tally,
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
    list_display = ("name", "target", "state", "why_not", "last_seen_at", "host", "torch", "code", "last_canary")
    list_filter = ("state", "target")
    list_select_related = ("target",)
    search_fields = ("name", "host")
    action_form = ReasonForm
    actions = ("drain", "quarantine", "activate", "send_canary")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Worker]:
        answered = Canary.objects.filter(worker=OuterRef("pk")).exclude(passed=None).order_by("-finished_at")
        workers: QuerySet[Worker] = super().get_queryset(request)
        return workers.annotate(
            canary_passed=Subquery(answered.values("passed")[:1]), canary_ratio=Subquery(answered.values("speedup")[:1])
        )

    @admin.display(description="Takes no work because")
    def why_not(self, worker: Worker) -> str:
        return worker.why_not or "–"

    @admin.display(description="torch")
    def torch(self, worker: Worker) -> str:
        return str(worker.versions.get("torch", "–"))

    @admin.display(description="Code")
    def code(self, worker: Worker) -> str:
        return str(worker.versions.get("code", "–"))

    @admin.display(description="Last canary")
    def last_canary(self, worker: Any) -> str:
        if worker.canary_passed is None:
            return "none yet"
        return f"{'passed' if worker.canary_passed else 'failed'}, {ratio_text(worker.canary_ratio)}"

    @admin.action(description="Drain: finish what it holds, give it nothing new", permissions=["change_state"])
    def drain(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        apply(request, queryset, "workers drained", _to(WorkerState.DRAINED))

    @admin.action(description="Quarantine: give it nothing until somebody has looked", permissions=["change_state"])
    def quarantine(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        apply(request, queryset, "workers quarantined", _to(WorkerState.QUARANTINED))

    @admin.action(description="Activate", permissions=["change_state"])
    def activate(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        apply(request, queryset, "workers activated", _to(WorkerState.ACTIVE))

    @admin.action(description="Send a canary now", permissions=["change_state"])
    def send_canary(self, request: HttpRequest, queryset: QuerySet[Worker]) -> None:
        apply(request, queryset, "canaries sent", lambda worker, _, reason: canaries.send(worker, reason))

    def has_change_state_permission(self, request: HttpRequest) -> bool:
        return bool(request.user.has_perm("leaderboard.change_worker"))


def _to(state: WorkerState) -> Verb:
    return lambda worker, request, reason: workers.set_state(worker, state, request.user, reason=reason)


@admin.register(Canary)
class CanaryAdmin(Record):
    list_display = ("worker", "sent_at", "passed", "code", "speedup", "reference_seconds", "reason")
    list_filter = ("passed", "worker__target", "worker")
    list_select_related = ("worker",)
    search_fields = ("worker__name", "reason")
    date_hierarchy = "sent_at"


@admin.register(Tally)
class TallyAdmin(Record):
    list_display = ("name", "target", "label", "count", "seconds")
    list_filter = ("name", "target")


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
