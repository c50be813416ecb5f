"""The page for requests that cannot be read, with a sentence that says what was wrong with this one."""

from __future__ import annotations

from django.conf import settings
from django.core.exceptions import RequestDataTooBig, TooManyFieldsSent, TooManyFilesSent
from django.http import HttpRequest, HttpResponse
from django.http.multipartparser import MultiPartParserError
from django.shortcuts import render


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    # A request that could not be read has no session to look at, so the page is rendered without the request.
    return render(None, "400.html", {"reason": _reason(exception)}, status=400)  # type: ignore[arg-type]


def _reason(exception: Exception) -> str:
    if isinstance(exception, TooManyFilesSent):
        limit = settings.DATA_UPLOAD_MAX_NUMBER_FILES
        return (
            f"More than {limit:,} files came in one upload, which is the limit. Send them in parts. Nothing was stored."
        )
    if isinstance(exception, RequestDataTooBig):
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE // 1_000_000
        return f"The pasted text exceeds {limit} MB, the limit of the form. Send it as a file. Nothing was stored."
    if isinstance(exception, TooManyFieldsSent):
        return "The form came with more fields than it has. Reload the page and send it again. Nothing was stored."
    if isinstance(exception, MultiPartParserError):
        return "The upload was cut off or damaged on its way. Send it again. Nothing was stored."
    return ""
