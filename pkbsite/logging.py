"""Binds what a request is about to every line that is logged while it is answered. The format is in evaluator.logs."""

from __future__ import annotations

from collections.abc import Callable
from uuid import uuid4

import structlog
from django.http import HttpRequest, HttpResponse


class RequestContext:
    """Binds the request's id, method, path and user."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with structlog.contextvars.bound_contextvars(
            request_id=uuid4().hex, method=request.method, path=request.path, user_id=request.user.pk
        ):
            return self.get_response(request)
