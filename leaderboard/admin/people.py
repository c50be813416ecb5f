"""People, teams and what they may use."""

from __future__ import annotations

from django import forms
from django.contrib import admin
from django.contrib.auth.admin import UserAdmin as DjangoUserAdmin
from django.db.models import Model
from django.http import HttpRequest
from unfold.admin import ModelAdmin, TabularInline
from unfold.forms import AdminPasswordChangeForm, UserChangeForm, UserCreationForm

from leaderboard import quotas
from leaderboard.admin.base import Curated, Record
from leaderboard.models import ApiToken, Invitation, Membership, QuotaEntry, RankedModel, Team, User


@admin.register(User)
class UserAdmin(DjangoUserAdmin, ModelAdmin):
    form = UserChangeForm
    add_form = UserCreationForm
    change_password_form = AdminPasswordChangeForm
    list_display = ("username", "email", "is_active", "is_staff", "date_joined", "last_login")
    list_filter = ("is_active", "is_staff", "is_superuser")
    search_fields = ("username", "email")


class MembershipInline(TabularInline):
    model = Membership
    extra = 0
    autocomplete_fields = ("user",)


@admin.register(Team)
class TeamAdmin(Curated):
    list_display = ("name", "slug", "created_at")
    search_fields = ("name", "slug", "members__username", "members__email")
    prepopulated_fields = {"slug": ("name",)}
    inlines = (MembershipInline,)


@admin.register(RankedModel)
class RankedModelAdmin(Curated):
    list_display = ("name", "organisation", "team", "alias", "open_weights", "is_baseline", "released_on")
    list_filter = ("open_weights", "is_baseline", "organisation")
    list_select_related = ("team",)
    search_fields = ("name", "alias", "organisation", "team__name")
    autocomplete_fields = ("team",)


@admin.register(Invitation)
class InvitationAdmin(Record):
    list_display = ("email", "team", "role", "invited_by", "created_at", "expires_at", "accepted_at")
    list_select_related = ("team", "invited_by")
    search_fields = ("email", "team__name")
    exclude = ("digest",)


@admin.register(ApiToken)
class ApiTokenAdmin(Record):
    list_display = ("name", "prefix", "user", "team", "created_at", "expires_at", "revoked_at", "last_used_at")
    list_select_related = ("user", "team")
    search_fields = ("name", "prefix", "user__username", "team__name")
    exclude = ("digest",)


class GrantForm(forms.ModelForm):
    """A grant is entered as the seconds that the team gets; it is stored as a negative charge."""

    seconds = forms.FloatField(
        label="Seconds granted", min_value=1, max_value=1e8, help_text="Beyond the limit, for as long as one window."
    )

    class Meta:
        model = QuotaEntry
        fields = ("team", "target", "seconds", "reason")


@admin.register(QuotaEntry)
class QuotaEntryAdmin(Record):
    """Charges are written by the machinery and only read; a grant can be added."""

    form = GrantForm
    autocomplete_fields = ("team",)
    list_display = ("team", "target", "seconds", "reason", "created_at")
    list_filter = ("target",)
    list_select_related = ("team", "target")
    search_fields = ("team__name", "reason")
    date_hierarchy = "created_at"

    def has_add_permission(self, request: HttpRequest, obj: Model | None = None) -> bool:
        return bool(request.user.has_perm("leaderboard.add_quotaentry"))

    def save_model(self, request: HttpRequest, obj: QuotaEntry, form: forms.ModelForm, change: bool) -> None:
        obj.pk = quotas.grant(obj.team, obj.target, obj.seconds, request.user, reason=obj.reason).pk
