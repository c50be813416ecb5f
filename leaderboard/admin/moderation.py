"""What maintainers say, and the trail of what everybody did."""

from __future__ import annotations

from django.contrib import admin
from import_export.admin import ImportExportModelAdmin
from import_export.resources import ModelResource
from unfold.contrib.import_export.forms import ExportForm, ImportForm

from leaderboard.admin.base import Curated, Record
from leaderboard.models import Announcement, AuditEvent, Campaign, PublishedResult, Review


class PublishedResultResource(ModelResource):
    class Meta:
        model = PublishedResult
        import_id_fields = ("key",)
        exclude = ("id",)
        skip_unchanged = True


@admin.register(PublishedResult)
class PublishedResultAdmin(Curated, ImportExportModelAdmin):
    resource_classes = (PublishedResultResource,)
    import_form_class = ImportForm
    export_form_class = ExportForm
    list_display = ("key", "kind", "model", "track", "correct", "faster", "speedup", "source", "order")
    list_filter = ("kind", "track", "organisation")
    search_fields = ("key", "model", "statement", "source")
    autocomplete_fields = ("problem",)


@admin.register(Announcement)
class AnnouncementAdmin(Curated):
    list_display = ("title", "published_at", "created_at")
    search_fields = ("title", "body")
    prepopulated_fields = {"slug": ("title",)}


@admin.register(Campaign)
class CampaignAdmin(Record):
    list_display = ("name", "state", "target", "suite", "protocol_version", "created_by", "created_at")
    list_filter = ("state", "target")
    search_fields = ("name", "reason")


@admin.register(Review)
class ReviewAdmin(Record):
    list_display = ("verdict", "state", "reason", "reviewer", "created_at", "decided_at")
    list_filter = ("state",)
    list_select_related = ("verdict__submission", "reviewer")
    search_fields = ("verdict__submission__public_id", "reason", "appeal")


@admin.register(AuditEvent)
class AuditEventAdmin(Record):
    list_display = ("created_at", "actor_name", "action", "subject_type", "subject_id", "reason")
    list_filter = ("action", "subject_type")
    search_fields = ("actor_name", "subject_id", "reason")
    date_hierarchy = "created_at"
