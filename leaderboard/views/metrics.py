"""Metrics for a Prometheus server: those of the requests and those of the machinery."""

from __future__ import annotations

import hmac
import ipaddress
import os

from django.conf import settings
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from leaderboard.metrics import SiteCollector


@require_safe
def metrics(request: HttpRequest) -> HttpResponse:
    """In the text format of Prometheus. To everybody else the page does not exist."""
    if not _may_read(request):
        raise Http404
    site = CollectorRegistry()
    site.register(SiteCollector())
    return HttpResponse(generate_latest(_of_requests()) + generate_latest(site), content_type=CONTENT_TYPE_LATEST)


def _may_read(request: HttpRequest) -> bool:
    """With the token; without one configured, from this machine, unless a proxy passes somebody else's request on."""
    if settings.METRICS_TOKEN:
        given = request.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {settings.METRICS_TOKEN}".encode())
    forwarded = any(name == "Forwarded" or name.startswith("X-Forwarded-") for name in request.headers)
    return not forwarded and _is_loopback(request.META.get("REMOTE_ADDR", ""))


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False


def _of_requests() -> CollectorRegistry:
    """What all web processes of this host have counted; see ``pkbsite.web_server``."""
    if "PROMETHEUS_MULTIPROC_DIR" not in os.environ:
        return REGISTRY
    registry = CollectorRegistry()
    MultiProcessCollector(registry)
    return registry
