"""Structured logs: one JSON object a line, with the ids of run, submission and attempt wherever they are known."""

from __future__ import annotations

import logging.config
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import structlog
from django.http import HttpRequest, HttpResponse

_SHARED: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.processors.StackInfoRenderer(),
]


def logging_config(*, level: str, style: str) -> None:
    """Sends structlog and the standard library's loggers to standard error, in one format.

    ``style``: "json" for machines, "console" for people.
    """
    finish: list[Any] = (
        [structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
        if style == "json"
        else [structlog.dev.ConsoleRenderer(colors=False)]
    )
    structlog.configure(
        processors=[*_SHARED, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {
                "structured": {
                    "()": structlog.stdlib.ProcessorFormatter,
                    "foreign_pre_chain": _SHARED,
                    "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
                }
            },
            "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "structured"}},
            "root": {"handlers": ["stderr"], "level": level},
        }
    )


class RequestContext:
    """Binds the request's id, path and user to every line that is logged while the request is answered."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        with structlog.contextvars.bound_contextvars(
            request_id=uuid4().hex, method=request.method, path=request.path, user_id=request.user.pk
        ):
            return self.get_response(request)
