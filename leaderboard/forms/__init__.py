"""Forms and filters of the pages."""

from __future__ import annotations

from django.http import HttpRequest, QueryDict


def posted(request: HttpRequest) -> QueryDict | None:
    """What a form is bound to: the posted fields, even if there are none; None where the page is only looked at."""
    return request.POST if request.method == "POST" else None
