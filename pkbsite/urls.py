"""Addresses of the site. Pages and their names stand in ``leaderboard.urls`` and ``problems.urls``."""

from django.contrib import admin
from django.urls import include, path

from leaderboard.views.metrics import metrics
from pkbsite.health import healthz, readyz
from problems.views import suite_prompts

urlpatterns = [
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", metrics, name="metrics"),
    path("admin/", admin.site.urls),
    path("accounts/", include("allauth.urls")),
    path("problems/", include("problems.urls")),
    path("prompts.jsonl", suite_prompts, name="suite-prompts"),
    path("", include("leaderboard.urls")),
]

handler400 = "leaderboard.views.errors.bad_request"
