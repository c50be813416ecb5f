"""What the settings of Celery prevent, each shown with the setting and, where it is cheap, without it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from evaluator.contract import Limits
from evaluator.messaging import VISIBILITY_TIMEOUT, celery_settings
from evaluator.worker.judging import GRACE, MARGIN
from tests.pipeline.conftest import ROOT, Broker, wait_for

APP = """
import os, time
import redis
from celery import Celery
from evaluator.messaging import celery_settings

app = Celery("trial", broker=os.environ["URL"])
app.conf.update(celery_settings("trial", visibility_timeout=3600))
app.conf.task_default_queue = "trial"
if os.environ["OURS"] == "no":  # Celery's own defaults
    app.conf.update(task_acks_late=False, task_reject_on_worker_lost=None, task_acks_on_failure_or_timeout=True)
if os.environ["OURS"] == "half":  # acknowledged late, and the rest by default
    app.conf.update(task_reject_on_worker_lost=None, task_acks_on_failure_or_timeout=True)
notes = redis.Redis.from_url(os.environ["URL"])

@app.task(name="die_once")
def die_once():
    if notes.incr("started") == 1:
        os._exit(9)  # as the kernel's killer does to a child
    notes.incr("done")

@app.task(name="hang", time_limit=1)
def hang():
    notes.incr("started")
    time.sleep(600)

@app.task(name="wait")
def wait():
    notes.incr("started")
    time.sleep(600)
"""


@contextmanager
def worker(broker: Broker, folder: Path, *, ours: str) -> Iterator[subprocess.Popen[bytes]]:
    """A prefork worker with one child, with our settings or with Celery's."""
    (folder / "trial.py").write_text(APP)
    command = [sys.executable, "-m", "celery", "--app", "trial", "worker", "--queues", "trial", "--concurrency", "1"]
    command += ["--pool", "prefork", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    env = {**os.environ, "URL": broker.url, "OURS": ours, "PYTHONPATH": f"{folder}:{ROOT}"}
    with (folder / "trial.log").open("ab") as log:
        process = subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)
    try:
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def send(broker: Broker, folder: Path, task: str) -> None:
    program = f"import trial; trial.app.send_task({task!r}, queue='trial')"
    env = {**os.environ, "URL": broker.url, "OURS": "yes", "PYTHONPATH": f"{folder}:{ROOT}"}
    subprocess.run([sys.executable, "-c", program], cwd=folder, env=env, check=True)


def held(broker: Broker) -> int:
    """Messages that the broker still has: waiting, or given out and not acknowledged."""
    client = broker.client()
    return int(client.llen("trial")) + int(client.hlen("unacked.trial"))


def started(broker: Broker) -> int:
    return int(broker.client().get("started") or 0)


@pytest.mark.parametrize(("ours", "survives"), [("yes", True), ("half", False)])
def test_a_child_that_is_killed_takes_no_job_along(broker: Broker, tmp_path: Path, ours: str, survives: bool) -> None:
    """``task_reject_on_worker_lost``: without it the message of a killed child is acknowledged."""
    with worker(broker, tmp_path, ours=ours):
        send(broker, tmp_path, "die_once")
        wait_for(lambda: started(broker) >= 1, "the task to start")
        if survives:
            wait_for(lambda: broker.client().get("done") == b"1", "the task to be done by another child")
            wait_for(lambda: held(broker) == 0, "the message to be acknowledged")
        else:
            wait_for(lambda: held(broker) == 0, "the message to be gone")
            assert broker.client().get("done") is None


@pytest.mark.parametrize(("ours", "kept"), [("yes", True), ("no", False)])
def test_a_worker_that_is_killed_leaves_its_job_in_the_broker(
    broker: Broker, tmp_path: Path, ours: str, kept: bool
) -> None:
    """``task_acks_late``: without it the broker has forgotten the job before it is done."""
    with worker(broker, tmp_path, ours=ours) as process:
        send(broker, tmp_path, "wait")
        wait_for(lambda: started(broker) == 1, "the task to start")
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert (held(broker) == 1) is kept


def test_a_job_beyond_its_time_limit_does_not_count_as_done(broker: Broker, tmp_path: Path) -> None:
    """``task_acks_on_failure_or_timeout`` off: by default it is acknowledged as if it had been done."""
    with worker(broker, tmp_path, ours="yes"):
        send(broker, tmp_path, "hang")
        wait_for(lambda: "Hard time limit" in (tmp_path / "trial.log").read_text(), "the limit to strike")
        assert started(broker) == 1
        assert "succeeded" not in (tmp_path / "trial.log").read_text()


def test_nothing_is_delivered_twice_while_it_may_still_run() -> None:
    """The visibility timeout lies far above the longest evaluation: its budget, the judge's margin, its way out."""
    longest = Limits().total + MARGIN + GRACE
    assert 4 * longest < VISIBILITY_TIMEOUT
    options = celery_settings("eval.h100x4", visibility_timeout=VISIBILITY_TIMEOUT)["broker_transport_options"]
    assert options["visibility_timeout"] == VISIBILITY_TIMEOUT
    others = celery_settings("results", visibility_timeout=60)["broker_transport_options"]
    keys = ("unacked_key", "unacked_index_key", "unacked_mutex_key")
    assert not {options[key] for key in keys} & {others[key] for key in keys}  # the shorter timeout stays its own


def test_no_worker_listens_to_remote_control_or_reads_pickles() -> None:
    settings = celery_settings("results", visibility_timeout=60)
    assert settings["accept_content"] == ["json"]
    assert not settings["worker_enable_remote_control"]
    assert not settings["worker_send_task_events"]
    assert settings["worker_prefetch_multiplier"] == 1
