"""What each of the Celery settings in ``evaluator.messaging`` prevents: with ours, and with Celery's default beside it.

The workers are real ones, of a small app with the project's settings, on a broker of their own. What becomes of a job
whose worker or child dies is in test_celery_settings.py, which every ``./test`` runs.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from celery import Celery

from evaluator.contract import Limits
from evaluator.messaging import VISIBILITY_TIMEOUT
from evaluator.worker.judging import MARGIN
from tests.pipeline import conftest
from tests.pipeline.conftest import ROOT, Broker, wait_for

pytestmark = pytest.mark.nightly
QUEUE = "small"


@dataclass
class Small:
    """Workers of the small app on ``broker``, and what their tasks noted."""

    folder: Path
    broker: Broker
    workers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(
        self, *, pool: str = "solo", consumer: str = QUEUE, queue: str = QUEUE, visibility: int = 3_600, **override: Any
    ) -> int:
        """Start a worker; returns its number. ``override``: settings in place of ours."""
        number = len(self.workers)
        env = {
            **os.environ,
            "BROKER": self.broker.url,
            "CONSUMER": consumer,
            "VISIBILITY": str(visibility),
            "OVERRIDE": json.dumps(override),
            "NOTES": str(self.notes),
            "C_FORCE_ROOT": "1",  # else Celery refuses to read pickles as root, which is what one test is about
        }
        command = [sys.executable, "-m", "celery", "--app", "tests.pipeline.small_app", "worker", "--queues", queue]
        command += ["--pool", pool, "--concurrency", "1", "--hostname", f"w{number}@here", "--loglevel", "INFO"]
        command += ["--without-gossip", "--without-mingle"]
        with (self.folder / f"small{number}.log").open("wb") as log:
            self.workers.append(subprocess.Popen(command, cwd=ROOT, env=env, stdout=log, stderr=log))
        wait_for(lambda: " ready." in self.log(number), "the small worker to be ready")
        return number

    def send(self, task: str, *args: object, queue: str = QUEUE) -> None:
        app = Celery("sender", broker=self.broker.url, set_as_current=False)
        app.send_task(task, args=args, queue=queue)
        app.close()

    @property
    def notes(self) -> Path:
        return self.folder / "notes"

    def noted(self, line: str) -> int:
        return self.notes.read_text().splitlines().count(line)

    def held(self, consumer: str = QUEUE) -> int:
        """Messages that a worker holds and that would come back if it died."""
        return self.broker.client().hlen(f"unacked.{consumer}")  # type: ignore[return-value]

    def waiting(self) -> int:
        return self.broker.client().llen(QUEUE)  # type: ignore[return-value]

    def log(self, number: int) -> str:
        return (self.folder / f"small{number}.log").read_text(errors="replace")


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Small]:
    monkeypatch.setattr(conftest, "PATIENCE", 240.0)
    broker = Broker(tmp_path)
    broker.start()
    small = Small(tmp_path, broker)
    small.notes.touch()
    yield small
    for worker in small.workers:
        worker.kill()
        worker.wait()
    broker.stop()


def begun(small: Small, word: str, times: int = 1) -> Callable[[], bool]:
    return lambda: small.noted(f"{word} begins") >= times


def test_visibility_timeout_above_the_longest_task_prevents_a_second_start(small: Small) -> None:
    limit = Limits().total + MARGIN
    assert limit * 4 < VISIBILITY_TIMEOUT
    for _ in range(2):
        small.start(visibility=1, transport_options={"unacked_restore_interval": 1}, consumer="short")
    small.send("work", "short", 600)
    wait_for(begun(small, "short", 2), "the task to be begun a second time while the first still runs")


def test_keys_of_their_own_keep_consumers_from_giving_back_each_others_messages(small: Small) -> None:
    """A results worker has a short timeout, evaluation workers a long one; by default they share their keys."""
    short = {"visibility": 1, "transport_options": {"unacked_restore_interval": 1}}
    small.start(consumer="long")
    small.send("work", "ours", 600)
    wait_for(begun(small, "ours"), "the task to begin")
    small.start(queue="other", consumer="brief", **short)  # type: ignore[arg-type]
    small.send("work", "brief", 3, queue="other")
    wait_for(lambda: small.noted("brief ends"), "the brief task to end")
    assert small.held("long") == 1

    keys = {"unacked_key": "unacked.shared", "unacked_index_key": "index", "unacked_mutex_key": "mutex"}
    for worker in small.workers:
        worker.kill()
    small.start(transport_options=keys)
    small.send("work", "default", 600)
    wait_for(begun(small, "default"), "the task to begin")
    small.start(queue="other", visibility=1, transport_options={**keys, "unacked_restore_interval": 1})
    wait_for(lambda: small.waiting() == 1, "the message to be given back although its task still runs")


def test_prefetch_of_one_leaves_to_others_what_they_could_do_now(small: Small) -> None:
    for _ in range(5):
        small.send("work", "long", 600)
    small.start(pool="prefork")
    wait_for(begun(small, "long"), "the task to begin")
    assert (small.held(), small.waiting()) == (1, 4)

    small.workers[0].kill()
    small.broker.client().flushall()
    for _ in range(5):
        small.send("work", "hoarded", 600)
    small.start(worker_prefetch_multiplier=4, consumer="hoarder", pool="prefork")
    wait_for(lambda: small.held("hoarder") == 4, "the worker to hold what it cannot do yet")


def test_without_remote_control_nobody_stops_the_workers_through_the_broker(small: Small) -> None:
    ours, default = small.start(), small.start(worker_enable_remote_control=True, queue="other")
    app = Celery("intruder", broker=small.broker.url, set_as_current=False)
    wait_for(lambda: app.control.broadcast("shutdown") or small.workers[default].poll() is not None, "it to stop")
    small.send("work", "still", 0)
    wait_for(begun(small, "still"), "the task to begin")
    assert small.workers[ours].poll() is None


def test_only_json_is_read_since_a_pickle_would_run_code(small: Small) -> None:
    class Exploit:
        def __reduce__(self) -> tuple[object, tuple[object, ...]]:
            return os.mkdir, (str(small.folder / "owned"),)

    def post() -> None:
        with Celery("intruder", broker=small.broker.url, set_as_current=False).connection() as connection:
            producer = connection.Producer()
            headers = {"task": "work", "id": "1", "lang": "py", "argsrepr": "", "kwargsrepr": ""}
            producer.publish(
                pickle.dumps(Exploit()),
                routing_key=QUEUE,
                content_type="application/x-python-serialize",
                content_encoding="binary",
                headers=headers,
            )

    small.start()
    post()
    small.send("work", "after", 0)
    wait_for(begun(small, "after"), "the task to begin")
    assert not (small.folder / "owned").exists()

    small.workers[0].kill()
    small.start(accept_content=["json", "pickle"])
    post()
    wait_for((small.folder / "owned").exists, "the pickle to be read")


def test_a_broker_that_restarts_neither_ends_what_runs_nor_silences_the_worker(small: Small) -> None:
    """Down while a task ends, so that it cannot be acknowledged: kombu's own message would leave the worker deaf."""
    small.start()
    small.send("work", "first", 3)
    wait_for(begun(small, "first"), "the task to begin")
    small.broker.stop()
    wait_for(lambda: small.noted("first ends"), "the task to end without a broker")
    small.broker.start()
    small.send("work", "second", 0)
    wait_for(begun(small, "second"), "the next task to begin")
    assert small.noted("first begins") == 1
