"""Tasks of the web side's own Celery app. They find their work in the database and may run at any time, twice too."""

from __future__ import annotations

import structlog

from leaderboard import broker_acl, canaries, reaping
from pkbsite.celery import app

log = structlog.get_logger(__name__)


@app.task(name="reap")
def reap() -> None:
    """Bring back what was lost. Sent by beat every ``PKB_REAPER_SECONDS``."""
    reaped = reaping.reap()
    if reaped != reaping.Reaped():
        log.info("reaped", expired=reaped.expired, resent=reaped.resent, forgotten=reaped.forgotten)


@app.task(name="keep-up-broker-users")
def keep_up_broker_users() -> None:
    """Let the workers into a broker that has forgotten them. Sent by beat every ``PKB_REAPER_SECONDS``."""
    broker_acl.keep_up()


@app.task(name="send-canaries")
def send_canaries() -> None:
    """Have every host judge a known file when its time has come (``PKB_CANARY_SECONDS``)."""
    if sent := canaries.visit():
        log.info("canaries sent", number=sent)
