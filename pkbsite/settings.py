"""Django settings. What an operator may change stands in ``pkbsite.environment.SETTINGS``, everything else here."""

from __future__ import annotations

import os
from pathlib import Path

from evaluator.logs import logging_config
from pkbsite.environment import Environment, database, email

BASE_DIR = Path(__file__).resolve().parent.parent
env = Environment(os.environ, BASE_DIR)

DEBUG = env.flag("DEBUG")
SECRET_KEY = env.secret_key(debug=DEBUG)
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = env.list("CSRF_TRUSTED_ORIGINS")
SITE_URL = env.text("SITE_URL").rstrip("/")
DATA_DIR = env.path("PKB_DATA")

INSTALLED_APPS = [
    "unfold",
    "unfold.contrib.filters",
    "unfold.contrib.forms",
    "unfold.contrib.import_export",
    "unfold.contrib.simple_history",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.humanize",
    "django.contrib.messages",
    "django.contrib.sessions",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "allauth",
    "allauth.account",
    "allauth.socialaccount",
    "allauth.socialaccount.providers.github",
    "axes",
    "django_filters",
    "django_htmx",
    "django_prometheus",
    "import_export",
    "ninja",
    "simple_history",
    "problems",
    "leaderboard",
]

MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "django.middleware.gzip.GZipMiddleware",  # tokens in pages are masked anew each time, and it pads (BREACH)
    "django.middleware.security.SecurityMiddleware",
    "pkbsite.headers.SecurityHeaders",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "pkbsite.logging.RequestContext",
    "allauth.account.middleware.AccountMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "simple_history.middleware.HistoryRequestMiddleware",
    "axes.middleware.AxesMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

ROOT_URLCONF = "pkbsite.urls"
WSGI_APPLICATION = "pkbsite.wsgi.application"
TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = {"default": database(env.text("DATABASE_URL"), DATA_DIR, env.number("DATABASE_CONN_MAX_AGE"))}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
CACHES = {
    "default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": env.text("CACHE_URL")}
    if env.text("CACHE_URL")
    else {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"},
}

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
USE_I18N = False

STATIC_URL = "/static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
STATICFILES_FINDERS = [
    "django.contrib.staticfiles.finders.FileSystemFinder",
    "django.contrib.staticfiles.finders.AppDirectoriesFinder",
    "pkbsite.finders.PlotlyFinder",
]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
MEDIA_ROOT = DATA_DIR / "media"

# Accounts
AUTH_USER_MODEL = "leaderboard.User"
AUTHENTICATION_BACKENDS = [
    "axes.backends.AxesStandaloneBackend",
    "django.contrib.auth.backends.ModelBackend",
    "allauth.account.auth_backends.AuthenticationBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]
LOGIN_URL = "account_login"
LOGIN_REDIRECT_URL = "/"
ACCOUNT_LOGIN_METHODS = {"username", "email"}
ACCOUNT_SIGNUP_FIELDS = ["email*", "username*", "password1*", "password2*"]
ACCOUNT_EMAIL_VERIFICATION = "mandatory"
ACCOUNT_UNIQUE_EMAIL = True
ACCOUNT_DEFAULT_HTTP_PROTOCOL = "https" if env.flag("PKB_HTTPS") else "http"
ACCOUNT_EMAIL_SUBJECT_PREFIX = ""
GITHUB_LOGIN = bool(env.text("GITHUB_CLIENT_ID"))
SOCIALACCOUNT_PROVIDERS = (
    {
        "github": {
            "APPS": [{"client_id": env.text("GITHUB_CLIENT_ID"), "secret": env.text("GITHUB_CLIENT_SECRET")}],
            "SCOPE": ["user:email"],
            "VERIFIED_EMAIL": True,
        }
    }
    if GITHUB_LOGIN
    else {}
)
AXES_FAILURE_LIMIT = 10
AXES_COOLOFF_TIME = 1  # hour
AXES_LOCKOUT_PARAMETERS = [["username", "ip_address"]]
AXES_RESET_ON_SUCCESS = True
AXES_LOCKOUT_TEMPLATE = "429.html"
AXES_VERBOSE = False

# Safety of transport and pages. The content security policy stands in pkbsite.headers.
SECURE_SSL_REDIRECT = SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = env.flag("PKB_HTTPS")
SECURE_REDIRECT_EXEMPT = [r"^healthz$", r"^readyz$", r"^metrics$"]
SECURE_HSTS_SECONDS = 31_536_000 if env.flag("PKB_HTTPS") else 0
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if env.flag("PKB_HTTPS") else None
SECURE_REFERRER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SESSION_COOKIE_HTTPONLY = True
CSRF_COOKIE_HTTPONLY = True  # htmx sends the token from the form or from hx-headers, never from the cookie
# A submission of a whole suite by the folder button is some hundred files; its sizes are checked by leaderboard.intake.
DATA_UPLOAD_MAX_NUMBER_FILES = 2_000
DATA_UPLOAD_MAX_MEMORY_SIZE = 8 * 1024 * 1024

locals().update(email(env.text("EMAIL_URL")))
DEFAULT_FROM_EMAIL = SERVER_EMAIL = env.text("DEFAULT_FROM_EMAIL")

# The way of an attempt
REDIS_URL = env.text("REDIS_URL")
LEASE_SECONDS = env.number("PKB_LEASE_SECONDS")
REAPER_SECONDS = env.number("PKB_REAPER_SECONDS")
RESEND_SECONDS = env.number("PKB_RESEND_SECONDS")
PRACTICE_FILES = env.count("PKB_PRACTICE_FILES")
QUOTA_SECONDS = env.count("PKB_QUOTA_SECONDS")
QUOTA_WINDOW_SECONDS = env.number("PKB_QUOTA_WINDOW_SECONDS")
SINGLE_SHOT_RUNS = env.count("PKB_SINGLE_SHOT_RUNS")
PREVIEW_SECONDS = env.number("PKB_PREVIEW_SECONDS")
BROKER_USERS = env.flag("PKB_BROKER_USERS")
CANARY_SECONDS = env.number("PKB_CANARY_SECONDS")
ALERT_SECONDS = env.number("PKB_ALERT_SECONDS")
METRICS_TOKEN = env.text("PKB_METRICS_TOKEN")
ONLY_DEMONSTRATION = env.flag("PKB_ONLY_DEMONSTRATION")
TARGETS_FILE = BASE_DIR / "evaluator" / "targets.json"
SUITE_MANIFEST = BASE_DIR / "problems" / "suite" / "manifest.json"

LOGGING_CONFIG = None  # structlog and logging are set up together, below
logging_config(level=env.text("LOG_LEVEL"), style=env.text("LOG_FORMAT"))

UNFOLD = {"SITE_TITLE": "ParallelKernelBench", "SITE_HEADER": "ParallelKernelBench", "SITE_URL": "/"}
SIMPLE_HISTORY_REVERT_DISABLED = False
IMPORT_EXPORT_USE_TRANSACTIONS = True
PROMETHEUS_EXPORT_MIGRATIONS = False
