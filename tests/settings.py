"""The site's settings as the tests run them: those of production, with the few differences that a test needs."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

os.environ.setdefault("SECRET_KEY", "a-key-for-tests-only-and-long-enough-0123456789")
# Nothing that a test writes lands in the checkout's data folder.
os.environ.setdefault("PKB_DATA", str(Path(tempfile.gettempdir()) / f"pkb-tests-{os.getuid()}"))

from pkbsite.settings import *  # noqa: F403

# A database in a file, one for each run of the tests: in WAL mode as on a real site, and other processes can open it.
if DATABASES["default"]["ENGINE"].endswith("sqlite3"):  # noqa: F405
    DATABASES["default"]["TEST"] = {"NAME": DATA_DIR / f"test-{os.getpid()}.sqlite3"}  # noqa: F405

# Argon2 and PBKDF2 are slow on purpose; no test depends on that.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
# The manifest of production names files by digest and needs 'collectstatic' first.
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {"BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"},
}
EMAIL_BACKEND = "django.core.mail.backends.locmem.EmailBackend"
# Static files are served from where they lie, without 'collectstatic'.
WHITENOISE_USE_FINDERS = WHITENOISE_AUTOREFRESH = True
