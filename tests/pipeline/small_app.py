"""A Celery app with the project's settings and one task, for the tests of what each setting prevents.

Reads from the environment: BROKER, CONSUMER, VISIBILITY (seconds), OVERRIDE (JSON, settings in place of ours; a
"transport_options" in it goes over ``broker_transport_options``), NOTES (the file that the task writes to).
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from celery import Celery

from evaluator.acknowledging import Transport
from evaluator.messaging import celery_settings

NOTES = Path(os.environ["NOTES"])
app = Celery("small", broker=os.environ["BROKER"], set_as_current=False)
app.conf.update(celery_settings(os.environ["CONSUMER"], visibility_timeout=int(os.environ["VISIBILITY"])))
app.conf.broker_transport = Transport
override = json.loads(os.environ["OVERRIDE"])
options = {**app.conf.broker_transport_options, **override.pop("transport_options", {})}
app.conf.update(override, broker_transport_options=options)


def note(line: str) -> None:
    with NOTES.open("a") as file:
        file.write(line + "\n")


@app.task(name="work")
def work(word: str, seconds: float) -> None:
    note(f"{word} begins")
    time.sleep(seconds)
    note(f"{word} ends")
