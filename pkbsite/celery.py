"""The web side's Celery app: sends jobs, and runs the housekeeping that beat asks for.

What workers report is recorded by an app of its own, ``leaderboard.results_app``.
"""

from __future__ import annotations

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pkbsite.settings")

from celery import Celery  # Celery's Django support reads the variable above
from django.conf import settings

from evaluator.acknowledging import Transport
from evaluator.messaging import SHORT_VISIBILITY_TIMEOUT, WEB_QUEUE, celery_settings

app = Celery("pkbsite", broker=settings.REDIS_URL, include=["leaderboard.tasks"], set_as_current=False)
app.conf.update(celery_settings(WEB_QUEUE, visibility_timeout=SHORT_VISIBILITY_TIMEOUT))
app.conf.broker_transport = Transport
app.conf.task_default_queue = WEB_QUEUE


def _every(seconds: float, task: str) -> dict[str, object]:
    """A wake-up that could not run in time is followed by the next one: they must not pile up."""
    return {"task": task, "schedule": seconds, "options": {"expires": max(1.0, seconds)}}


app.conf.beat_schedule = {
    name: _every(settings.REAPER_SECONDS, name) for name in ("reap", "keep-up-broker-users", "send-canaries")
}
# The schedule is constant, so nothing is lost if beat forgets when it last ran; and it notices a change at once.
app.conf.beat_max_loop_interval = max(1.0, min(5.0, settings.REAPER_SECONDS))
