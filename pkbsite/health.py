"""Two questions of an operator's machinery: does the process live (/healthz), may it get visitors (/readyz)."""

from __future__ import annotations

from collections.abc import Callable

import redis
import structlog
from django.conf import settings
from django.db import DatabaseError, connection
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, JsonResponse

log = structlog.get_logger(__name__)
BROKER_TIMEOUT = 2.0  # seconds; a broker that needs longer to say PONG is not ready


def healthz(request: HttpRequest) -> JsonResponse:
    """The process answers. Touches neither database nor broker, so that their failure does not restart web hosts."""
    return JsonResponse({"status": "ok"})


def readyz(request: HttpRequest) -> JsonResponse:
    """Database, migrations and broker, each "ok" or a sentence; status 503 if any is not ok."""
    checks: dict[str, Callable[[], str]] = {"database": _database, "migrations": _migrations, "broker": _broker}
    results = {name: check() for name, check in checks.items()}
    ready = all(result == "ok" for result in results.values())
    return JsonResponse(results, status=200 if ready else 503)


def _database() -> str:
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1")
    except DatabaseError as error:
        log.error("database not ready", error=str(error))
        return "the database does not answer; see the log"
    return "ok"


def _migrations() -> str:
    try:
        executor = MigrationExecutor(connection)
        plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
    except DatabaseError:
        return "unknown: the database does not answer"
    return f"{len(plan)} migrations are missing; run: python manage.py migrate" if plan else "ok"


def _broker() -> str:
    client = redis.Redis.from_url(
        settings.REDIS_URL, socket_connect_timeout=BROKER_TIMEOUT, socket_timeout=BROKER_TIMEOUT
    )
    try:
        client.ping()
    except redis.RedisError as error:
        log.error("broker not ready", error=str(error))
        return "the broker does not answer; submissions wait in the database until it does"
    finally:
        client.close()
    return "ok"
