"""Answers that browsers save as files."""

from __future__ import annotations

from typing import TypeVar

from django.http import HttpResponseBase

Response = TypeVar("Response", bound=HttpResponseBase)


def as_file(response: Response, name: str, kind: str) -> Response:
    """``response`` under the name ``name.kind``."""
    response["Content-Disposition"] = f'attachment; filename="{name}.{kind}"'
    if kind == "parquet":
        response["Content-Encoding"] = "identity"  # compressed inside
    return response
