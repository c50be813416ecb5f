"""The name and the password under which a worker speaks to the broker. Plain data: the launcher uses it, too.

Every worker has a user of its own there. Its password follows from the key that signs its messages, so a host keeps one
secret, and a new key makes the old password void as well. What the user may do stands in ``leaderboard.broker_acl``.
"""

from __future__ import annotations

import hashlib
import hmac
from urllib.parse import quote, urlsplit, urlunsplit


def user_name(worker: str) -> str:
    """The broker's user of the worker of that name."""
    return f"worker.{worker}"


def password(key: str) -> str:
    """The password that goes with a worker's key (64 hexadecimal digits); the key cannot be computed from it."""
    return hmac.new(bytes.fromhex(key), b"password at the broker", hashlib.sha256).hexdigest()


def worker_url(broker: str, worker: str, key: str) -> str:
    """The broker's address ``broker`` (redis:// or rediss://) as that worker uses it, with its own user and password.

    The database is 0, the one for which the worker's user has its rights.
    """
    parts = urlsplit(broker)
    host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or "localhost"
    place = f"{quote(user_name(worker), safe='')}:{password(key)}@{host}:{parts.port or 6379}"
    return urlunsplit((parts.scheme, place, "/0", parts.query, ""))
