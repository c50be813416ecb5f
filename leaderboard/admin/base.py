"""What all rooms of the admin have in common: records are read, curated things are edited with history and trail."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django import forms
from django.contrib import messages
from django.db import models
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from simple_history.admin import SimpleHistoryAdmin
from unfold.admin import ModelAdmin
from unfold.forms import ActionForm
from unfold.widgets import UnfoldAdminTextInputWidget, UnfoldAdminURLInputWidget

from leaderboard import audit

Verb = Callable[[Any, HttpRequest, str], bool]
"""(object, request, reason) -> whether anything changed."""


class Record(ModelAdmin):
    """Something that the machinery writes: searched and read, never edited by hand."""

    list_per_page = 50
    show_full_result_count = False

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_change_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False


class Curated(SimpleHistoryAdmin, ModelAdmin):
    """Something that maintainers edit: with history, and an entry in the audit trail for each change."""

    list_per_page = 50
    formfield_overrides = {
        **ModelAdmin.formfield_overrides,
        models.URLField: {"widget": UnfoldAdminURLInputWidget, "assume_scheme": "https"},
    }

    def has_delete_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return False

    def save_model(self, request: HttpRequest, obj: Model, form: forms.ModelForm, change: bool) -> None:
        super().save_model(request, obj, form, change)
        action = f"{'edit' if change else 'add'} {obj._meta.verbose_name}"
        audit.write(action, obj, actor=request.user, fields=sorted(form.changed_data))


class ReasonForm(ActionForm):
    """The chooser of actions with a field for the reason, which every action of ours wants."""

    reason = forms.CharField(
        label="Reason",
        required=False,
        max_length=500,
        widget=UnfoldAdminTextInputWidget(attrs={"placeholder": "why; is shown or kept in the audit trail"}),
    )


def apply(request: HttpRequest, objects: QuerySet[Any], done: str, verb: Verb) -> None:
    """Run ``verb`` on each of the objects with the given reason and say how many it changed."""
    reason = request.POST.get("reason", "").strip()
    if not reason:
        messages.error(request, "Give a reason beside the action; nothing was changed.")
        return
    changed = sum(verb(obj, request, reason) for obj in objects)
    left = len(objects) - changed
    rest = f" {left} {'was' if left == 1 else 'were'} not in a state for it and stay as before." if left else ""
    messages.success(request, f"{changed} {done}.{rest}")
