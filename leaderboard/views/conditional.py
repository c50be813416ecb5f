"""Pages that change with the scores alone: an ETag from the version, and 304 for those who have the page already."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.messages import get_messages
from django.http import HttpRequest, HttpResponseBase
from django.utils.cache import get_conditional_response, patch_cache_control, patch_vary_headers

from leaderboard import versions
from leaderboard.models import ScoreVersion

View = Callable[..., HttpResponseBase]


def versioned(name: ScoreVersion.Name) -> Callable[[View], View]:
    """Gives the view the version of its group of pages as ``version``, for its cache keys, and its answer an ETag.

    Only visitors who are not signed in get the ETag: what others see carries their name and a token for forms. Whoever
    asks again with the same ETag gets 304 before the view does any work.
    """

    def decorate(view: View) -> View:
        @wraps(view)
        def answer(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            version = versions.current(name)
            etag = _etag(request, version)
            if etag:
                unchanged = get_conditional_response(request, etag=etag)
                if unchanged is not None:
                    return _marked(unchanged, etag)
            response = view(request, *args, version=version, **kwargs)
            return _marked(response, etag) if etag and response.status_code == 200 else response

        return answer

    return decorate


def _etag(request: HttpRequest, version: str | None) -> str | None:
    if version is None or request.user.is_authenticated or len(get_messages(request)):
        return None
    return f'W/"{hashlib.sha256(f"{version} {request.get_full_path()}".encode()).hexdigest()[:32]}"'


def _marked(response: HttpResponseBase, etag: str) -> HttpResponseBase:
    response.headers["ETag"] = etag
    patch_cache_control(response, no_cache=True)  # keep it, but ask each time
    patch_vary_headers(response, ["Cookie"])
    return response
