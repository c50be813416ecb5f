"""The processes of which the site consists, as data: ``./run`` starts them and docker-compose.yml must start the same.

``{python}`` stands for the interpreter, ``{data}`` for the data folder, ``{host}`` and ``{port}`` for the address of
the site, ``{target}`` for the target of an evaluation worker.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Process:
    """One long-running process.

    ``environment``: variables it reads besides those of ``COMMON``. ``role`` "web" needs Django and the database,
    "worker" runs on GPU hosts and gets neither database nor secret key. ``ready``: a text in its log that says that it
    is ready; empty: it is ready when its address answers.
    """

    name: str
    argv: tuple[str, ...]
    role: str
    environment: tuple[str, ...]
    ready: str
    sentence: str


WEB_ENVIRONMENT = ("SECRET_KEY", "DATABASE_URL", "REDIS_URL", "PKB_DATA", "ALLOWED_HOSTS", "LOG_LEVEL", "LOG_FORMAT")
WORKER_ENVIRONMENT = ("REDIS_URL", "PKB_TARGET", "PKB_WORKER_NAME", "PKB_WORKER_KEY", "LOG_LEVEL")

# Without gossip, mingle and heartbeat: workers neither talk to each other nor publish anything, and a GPU host has no
# right to (leaderboard.broker_acl). That they live is told by messages of ours.
# One process at a time (prefork, concurrency 1) in each Celery worker: a host evaluates one submission at a time, or
# timings would disturb each other, and reports are recorded in the order in which they come.
PROCESSES: tuple[Process, ...] = (
    Process(
        name="web",
        argv=(
            "{python}", "-m", "gunicorn", "pkbsite.wsgi", "--bind", "{host}:{port}", "--workers", "2", "--threads", "4",
            "--access-logfile", "-", "--graceful-timeout", "10", "--config", "python:pkbsite.web_server",
        ),
        role="web",
        environment=(*WEB_ENVIRONMENT, "CSRF_TRUSTED_ORIGINS", "SITE_URL", "PKB_HTTPS", "EMAIL_URL"),
        ready="Listening at",
        sentence="Pages, API and admin.",
    ),
    Process(
        name="results",
        argv=(
            "{python}", "-m", "celery", "--app", "leaderboard.results_app", "worker", "--queues", "results",
            "--concurrency", "1", "--pool", "solo", "--hostname", "results@%h", "--without-gossip", "--without-mingle",
            "--without-heartbeat", "--loglevel", "INFO",
        ),
        role="web",
        environment=WEB_ENVIRONMENT,
        ready=" ready.",
        sentence="Records what workers report; its only task is `record`.",
    ),
    Process(
        name="beat",
        argv=(
            "{python}", "-m", "celery", "--app", "pkbsite", "beat", "--schedule", "{data}/celerybeat-schedule",
            "--pidfile", "", "--loglevel", "INFO",
        ),
        role="web",
        environment=WEB_ENVIRONMENT,
        ready="beat: Starting...",
        sentence="Sends housekeeping its wake-ups.",
    ),
    Process(
        name="housekeeping",
        argv=(
            "{python}", "-m", "celery", "--app", "pkbsite", "worker", "--queues", "web", "--concurrency", "1",
            "--pool", "solo", "--hostname", "web@%h", "--without-gossip", "--without-mingle",
            "--without-heartbeat", "--loglevel", "INFO",
        ),
        role="web",
        environment=WEB_ENVIRONMENT,
        ready=" ready.",
        sentence="Requeues what was lost, sends canaries, keeps the workers' users in the broker.",
    ),
    Process(
        name="evaluation",
        argv=(
            "{python}", "-m", "celery", "--app", "evaluator.worker.app", "worker", "--queues", "eval.{target}",
            "--concurrency", "1", "--pool", "solo", "--hostname", "eval-{target}@%h", "--without-gossip",
            "--without-mingle", "--without-heartbeat", "--loglevel", "INFO",
        ),
        role="worker",
        environment=WORKER_ENVIRONMENT,
        ready=" ready.",
        sentence="Evaluates submissions for one target, one at a time.",
    ),
)  # fmt: skip
