"""Tasks of the web side's own Celery app. They find their work in the database and may run at any time, twice too."""

from __future__ import annotations

import structlog

from leaderboard import reaping
from pkbsite.celery import app

log = structlog.get_logger(__name__)


@app.task(name="reap")
def reap() -> None:
    """Bring back what was lost. Sent by beat every ``PKB_REAPER_SECONDS``."""
    reaped = reaping.reap()
    if reaped != reaping.Reaped():
        log.info("reaped", expired=reaped.expired, resent=reaped.resent, forgotten=reaped.forgotten)
