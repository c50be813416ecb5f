"""Every setting of the web side that an operator may give, in one list, read from the environment and nowhere else.

Settings of GPU hosts stand in ``evaluator.worker.settings``: a GPU host has no Django.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit


class SettingError(ValueError):
    """A setting is missing or malformed. The text names the variable and says what to do."""


@dataclass(frozen=True)
class Setting:
    """One environment variable: its name, how it is read, its default as text, and the sentence of the manual."""

    name: str
    kind: Literal["text", "secret", "flag", "number", "count", "list", "path"]
    default: str
    sentence: str


SETTINGS: tuple[Setting, ...] = (
    Setting("SECRET_KEY", "secret", "", "Signs sessions and links; required, at least 32 characters, unless DEBUG."),
    Setting("DEBUG", "flag", "no", "Shows tracebacks to visitors; for development only."),
    Setting("ALLOWED_HOSTS", "list", "localhost,127.0.0.1,[::1]", "Host names under which the site may be reached."),
    Setting("CSRF_TRUSTED_ORIGINS", "list", "", "Origins (https://host) of a proxy from which forms may be sent."),
    Setting("SITE_URL", "text", "http://localhost:8000", "Address of the site as written into e-mails and feeds."),
    Setting("PKB_HTTPS", "flag", "no", "The site is reached by https: secure cookies, redirect from http and HSTS."),
    Setting("PKB_DATA", "path", "data", "Folder for the SQLite database and, with ./run, keys and the broker's files."),
    Setting("DATABASE_URL", "text", "", "postgresql://user:password@host:port/name; empty: SQLite in PKB_DATA."),
    Setting("DATABASE_CONN_MAX_AGE", "number", "60", "Seconds for which a database connection is kept and reused."),
    Setting("REDIS_URL", "text", "redis://localhost:6379/0", "The broker, shared by web side and GPU hosts."),
    Setting(
        "CACHE_URL", "text", "", "redis://… for the cache of several web hosts; empty: the memory of each process."
    ),
    Setting("EMAIL_URL", "text", "console:", "smtp://user:password@host:port, smtps://…, or console: to print mails."),
    Setting("DEFAULT_FROM_EMAIL", "text", "pkbsite@localhost", "Sender of the site's e-mails."),
    Setting("GITHUB_CLIENT_ID", "text", "", "OAuth application for 'Sign in with GitHub'; empty: not offered."),
    Setting("GITHUB_CLIENT_SECRET", "secret", "", "Secret of that OAuth application."),
    Setting("PKB_LEASE_SECONDS", "number", "60", "How long an attempt stays with a worker that gives no sign of life."),
    Setting("PKB_REAPER_SECONDS", "number", "30", "How often expired leases and lost wake-ups are looked for."),
    Setting(
        "PKB_RESEND_SECONDS", "number", "60", "After how long a wake-up that is missing in the broker is sent again."
    ),
    Setting(
        "PKB_PRACTICE_FILES", "count", "4", "Files of small runs that a team may have ahead of its turn on a target."
    ),
    Setting("PKB_QUOTA_SECONDS", "count", "200000", "Evaluation seconds of a team per target and window; 0: no limit."),
    Setting("PKB_QUOTA_WINDOW_SECONDS", "number", "604800", "The rolling window of the quota."),
    Setting("PKB_SINGLE_SHOT_RUNS", "count", "3", "Single-shot runs of a model per calendar month; 0: no limit."),
    Setting("PKB_PREVIEW_SECONDS", "number", "1209600", "How long an upload that is not confirmed is kept."),
    Setting("PKB_BROKER_USERS", "flag", "yes", "The site sets up its workers' users in the broker and keeps them up."),
    Setting("PKB_CANARY_SECONDS", "number", "3600", "How often every host judges a known file; 0: never."),
    Setting("PKB_ALERT_SECONDS", "number", "3600", "After how long a waiting file is an alert on the status page."),
    Setting("PKB_METRICS_TOKEN", "secret", "", "Bearer token for /metrics; empty: read on the web host itself only."),
    Setting(
        "PKB_ONLY_DEMONSTRATION",
        "flag",
        "no",
        "Accepts only the demonstration files; ./run sets it where no sandbox can be made.",
    ),
    Setting("LOG_LEVEL", "text", "INFO", "Least severe log line that is written: DEBUG, INFO, WARNING or ERROR."),
    Setting("LOG_FORMAT", "text", "json", "json for machines, console for people."),
)
BY_NAME = {setting.name: setting for setting in SETTINGS}

_TRUE, _FALSE = {"1", "yes", "true", "on"}, {"0", "no", "false", "off", ""}


class Environment:
    """Reads the settings of ``SETTINGS``; relative paths are taken from ``base``."""

    def __init__(self, variables: Mapping[str, str], base: Path) -> None:
        self._variables = variables
        self._base = base

    def text(self, name: str) -> str:
        return self._raw(name, "text", "secret")

    def path(self, name: str) -> Path:
        return (self._base / self._raw(name, "path")).absolute()

    def list(self, name: str) -> list[str]:
        return [item.strip() for item in self._raw(name, "list").split(",") if item.strip()]

    def flag(self, name: str) -> bool:
        value = self._raw(name, "flag").lower()
        if value not in _TRUE | _FALSE:
            raise SettingError(f"{name} is {value!r}; say yes or no.")
        return value in _TRUE

    def number(self, name: str) -> float:
        value = self._raw(name, "number")
        try:
            number = float(value)
        except ValueError as error:
            raise SettingError(f"{name} is {value!r}; it must be a number of seconds.") from error
        if not 0 <= number < 1e9:
            raise SettingError(f"{name} is {value}; it must be at least 0 and less than a billion seconds.")
        return number

    def count(self, name: str) -> int:
        value = self._raw(name, "count")
        if not (value.isascii() and value.isdigit() and int(value) < 1_000_000_000):
            raise SettingError(f"{name} is {value!r}; it must be a whole number from 0 to 999,999,999.")
        return int(value)

    def secret_key(self, *, debug: bool) -> str:
        """The secret key. Only with DEBUG is there a fallback, so that no site runs on a key that anybody can read."""
        key = self.text("SECRET_KEY")
        if debug and not key:
            return "only-for-development-" + "0" * 32
        if len(key) < 32 or len(set(key)) < 8:
            raise SettingError(
                f"SECRET_KEY has {len(key)} characters; it must be a random text of at least 32. Make one with: "
                "python -c 'import secrets; print(secrets.token_urlsafe(48))'"
            )
        return key

    def _raw(self, name: str, *kinds: str) -> str:
        setting = BY_NAME[name]
        assert setting.kind in kinds, f"{name} is a {setting.kind}"
        return self._variables.get(name, setting.default)


def database(url: str, data: Path, conn_max_age: float) -> dict[str, Any]:
    """Django's description of the database at ``url``; empty: SQLite in the folder ``data``."""
    if not url:
        return _sqlite(data / "pkbsite.sqlite3")
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return _sqlite(Path(unquote(parts.path)))
    if parts.scheme not in {"postgres", "postgresql"}:
        raise SettingError(
            f"DATABASE_URL begins with {parts.scheme!r}; it must be postgresql://user:password@host:port/name or "
            "sqlite:///absolute/path."
        )
    options: dict[str, Any] = dict(parse_qsl(parts.query))
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": unquote(parts.path.lstrip("/")),
        "USER": unquote(parts.username or ""),
        "PASSWORD": unquote(parts.password or ""),
        "HOST": options.pop("host", unquote(parts.hostname or "")),
        "PORT": parts.port or "",
        "CONN_MAX_AGE": int(conn_max_age),
        "CONN_HEALTH_CHECKS": True,
        "OPTIONS": options,
    }


def _sqlite(path: Path) -> dict[str, Any]:
    path.parent.mkdir(parents=True, exist_ok=True)
    return {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": path,
        "OPTIONS": {
            # A transaction that reads first and writes later cannot wait for a writer and fails at once with
            # "database is locked"; taking the write lock at BEGIN makes it wait for up to `timeout` seconds.
            "transaction_mode": "IMMEDIATE",
            "timeout": 20,
            # WAL lets pages read while a worker writes; NORMAL loses no consistency with WAL, only the last commits
            # on a power cut.
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; PRAGMA foreign_keys=ON;",
        },
    }


def email(url: str) -> dict[str, Any]:
    """Django's e-mail settings for ``url``."""
    parts = urlsplit(url)
    if parts.scheme == "console":
        return {"EMAIL_BACKEND": "django.core.mail.backends.console.EmailBackend"}
    if parts.scheme not in {"smtp", "smtps"} or not parts.hostname:
        raise SettingError(f"EMAIL_URL is {url!r}; it must be smtp://host:port, smtps://host:port or console:.")
    secure = parts.scheme == "smtps"
    return {
        "EMAIL_BACKEND": "django.core.mail.backends.smtp.EmailBackend",
        "EMAIL_HOST": parts.hostname,
        "EMAIL_PORT": parts.port or (465 if secure else 587),
        "EMAIL_HOST_USER": unquote(parts.username or ""),
        "EMAIL_HOST_PASSWORD": unquote(parts.password or ""),
        "EMAIL_USE_SSL": secure,
        # A password never crosses the net in the clear.
        "EMAIL_USE_TLS": not secure and bool(parts.password),
        "EMAIL_TIMEOUT": 20,
    }
