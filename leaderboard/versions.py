"""Whether what pages show has changed: one row for each group of pages, rewritten in the transaction of the change.

Pages take their cache keys and ETags from it, so that a cached page is never older than the scores. Results under an
embargo become public by the clock and not by a write; the newest embargo that has ended is therefore part of the
version.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from django.conf import settings
from django.core.cache import cache as store
from django.db.models import Model, Subquery
from django.db.models.signals import post_delete, post_save
from django.utils import timezone

from leaderboard.models import (
    Campaign,
    PublishedResult,
    RankedModel,
    Run,
    ScoreVersion,
    Target,
    Team,
    Visibility,
)
from problems.models import Problem, ProblemVersion, Suite

BOARD, VERDICTS = ScoreVersion.Name.BOARD, ScoreVersion.Name.VERDICTS
KEPT_SECONDS = 24 * 3600
SHOWN: tuple[type[Model], ...] = (
    Campaign,
    Problem,
    ProblemVersion,
    PublishedResult,
    RankedModel,
    Run,
    Suite,
    Target,
    Team,
)
"""What pages show besides scores. Saving or deleting one is a change; ``QuerySet.update`` must call ``bump`` itself."""

T = TypeVar("T")


def bump(*names: ScoreVersion.Name) -> None:
    """Say that pages of these groups, or of all, have changed. Call it in the transaction of the change, at its end."""
    for name in names or tuple(ScoreVersion.Name):
        fields = {"token": secrets.token_hex(16), "changed_at": timezone.now()}
        if not ScoreVersion.objects.filter(name=name).update(**fields):
            ScoreVersion.objects.update_or_create(name=name, defaults=fields)


def current(name: ScoreVersion.Name, *, at: datetime | None = None) -> str | None:
    """The version as text, or None before the first change: then nothing is cached. One query."""
    ended = Run.objects.filter(visibility=Visibility.EMBARGOED, embargo_until__lte=at or timezone.now())
    row = (
        ScoreVersion.objects.filter(name=name)
        .annotate(opened=Subquery(ended.order_by("-embargo_until").values("embargo_until")[:1]))
        .values_list("token", "opened")
        .first()
    )
    if row is None:
        return None
    token, opened = row
    return "-".join([_release(), token, *([f"{opened.timestamp():.6f}"] if opened else [])])


def cached(version: str | None, key: str, compute: Callable[[], T]) -> T:
    """``compute()``, or what it gave before for this ``key`` at this ``version``."""
    if version is None:
        return compute()
    name = hashlib.sha256(f"{version} {key}".encode()).hexdigest()  # a key may hold what a reader typed
    found = store.get(name)
    if found is None:
        found = compute()
        store.set(name, found, KEPT_SECONDS)
    return found  # type: ignore[no-any-return]


@cache
def _release() -> str:
    """Digest of what turns scores into pages, so that no cached page outlives the release that made it."""
    digest = hashlib.sha256()
    for folder in ("leaderboard", "templates", "static"):
        for path in sorted((settings.BASE_DIR / folder).rglob("*")):
            if path.suffix in {".py", ".html", ".css", ".js", ".json"}:
                digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def watch() -> None:
    """Notice that something pages show was saved or deleted, whoever did it: admin, form or command."""
    for model in SHOWN:
        post_save.connect(_changed, sender=model, dispatch_uid=f"version of {model.__name__} saved")
        post_delete.connect(_changed, sender=model, dispatch_uid=f"version of {model.__name__} deleted")


def _changed(sender: type[Model], raw: bool = False, created: bool = False, **_: Any) -> None:
    # ``raw``: a fixture that is being loaded, when the table of versions may not be there yet. A new run has nothing to
    # show yet; its scores will say so themselves.
    if not raw and not (created and sender is Run):
        bump()
