"""The Celery app that records reports. It has exactly one task, so a GPU host can ask for nothing else."""

from __future__ import annotations

import os
import time

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pkbsite.settings")

import django  # Django reads the variable above

django.setup()

import structlog
from celery import Celery
from celery.exceptions import Reject
from celery.worker import state
from django.conf import settings
from django.db import DataError, IntegrityError, InterfaceError, OperationalError, close_old_connections
from kombu.exceptions import OperationalError as BrokerError

from evaluator.messaging import RECORD_TASK, RESULTS_QUEUE, SHORT_VISIBILITY_TIMEOUT, celery_settings
from leaderboard import recording, traces

log = structlog.get_logger(__name__)

app = Celery("results", broker=settings.REDIS_URL, set_as_current=False)
app.conf.update(celery_settings(RESULTS_QUEUE, visibility_timeout=SHORT_VISIBILITY_TIMEOUT))
app.conf.broker_transport = "evaluator.transport:RecordTransport"
app.conf.task_default_queue = RESULTS_QUEUE

LONGEST_PAUSE = 30.0  # seconds between two tries to reach the database
NO_ROOM_PAUSE = 2.0  # seconds that a trace without room waits at the head of the queue: so often a disk is tried


@app.task(name=RECORD_TASK)
def record(message: str) -> None:
    """Record one message of a worker. Returns, and so acknowledges, only once it is stored or refused."""
    pause = 0.5
    while True:
        try:
            _record(message)
            return
        except traces.NoRoom as error:
            # A disk may stay full for days. Reports must not wait behind a trace, so it goes to the end of the queue.
            log.error("trace not stored, goes to the end of the queue", reason=str(error))
            _sleep_unless_stopping(NO_ROOM_PAUSE)
            _send_to_the_end(message)
            return
        except (OperationalError, InterfaceError) as error:
            log.error("database unavailable, trying again", seconds=pause, error=str(error))
            close_old_connections()
        _sleep_unless_stopping(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _send_to_the_end(message: str) -> None:
    try:
        app.send_task(RECORD_TASK, args=[message], queue=RESULTS_QUEUE, retry=False)
    except BrokerError as error:
        raise Reject(f"broker unavailable: {error}", requeue=True) from error


def _record(message: object) -> None:
    if not isinstance(message, str):
        log.warning("message refused", reason=f"it is a {type(message).__name__}, not a text")
        return
    try:
        recording.record_message(message)
    except recording.Refused as refusal:
        recording.note_refusal(refusal, message)
    except (DataError, IntegrityError, ValueError) as error:
        # The database refuses its content, today and tomorrow: retrying would stop all reports behind it. The
        # attempt's lease will run out, and the reaper tries the submission again.
        log.exception("message could not be stored")
        recording.note_refusal(recording.Refused(f"could not be stored: {error}", "not_storable"), message)


def _sleep_unless_stopping(seconds: float) -> None:
    """Wait; if the worker is told to stop meanwhile, give the message back to the queue."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if state.should_stop or state.should_terminate:
            raise Reject("the worker stops", requeue=True)
        time.sleep(0.1)


app.finalize()
for _name in list(app.tasks):
    if _name != RECORD_TASK:
        app.tasks.unregister(_name)
