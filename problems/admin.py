"""The catalogue in the admin. It comes from the suite's manifest, so it is read here, not written."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import Model
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline

from problems.models import Problem, ProblemVersion, Suite


class FromManifest(ModelAdmin):
    """Loaded by ``manage.py load_suite``; an edit here would not be what the judge does."""

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class VersionInline(TabularInline):
    model = ProblemVersion
    fields = ("number", "digest", "created_at")
    readonly_fields = fields
    extra = 0
    max_num = 0
    can_delete = False
    show_change_link = True


@admin.register(Problem)
class ProblemAdmin(FromManifest):
    list_display = ("number", "slug", "title", "type", "difficulty", "domain", "stage")
    list_filter = ("type", "difficulty", "domain", "stage")
    search_fields = ("number", "slug", "title")
    inlines = (VersionInline,)


@admin.register(ProblemVersion)
class ProblemVersionAdmin(FromManifest):
    list_display = ("problem", "number", "digest", "created_at")
    list_filter = ("suites", "problem__type")
    list_select_related = ("problem",)
    search_fields = ("problem__slug", "problem__number", "digest")


@admin.register(Suite)
class SuiteAdmin(FromManifest):
    list_display = ("version", "title", "is_current", "released_on", "created_at")
    list_filter = ("is_current",)
    search_fields = ("version",)
    autocomplete_fields = ("problem_versions",)
