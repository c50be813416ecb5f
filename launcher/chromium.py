"""The browser of the browser tests: whichever Chromium is installed; on Debian as root it is fetched with apt."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from launcher.console import Refusal, say

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PACKAGES = ("chromium", "fontconfig", "fonts-dejavu-core")


def find() -> Path | None:
    """Path of an installed Chromium or Chrome: that of ``PKB_CHROMIUM`` if set, else the first on the path."""
    named = os.environ.get("PKB_CHROMIUM")
    if named:
        return Path(named)
    return next((Path(path) for name in NAMES if (path := shutil.which(name))), None)


def find_or_install() -> Path:
    """An installed Chromium, installed by apt if need be and possible. Raises ``Refusal`` if there is none."""
    if (found := find()) and (not _debian_root() or _has_fonts()):
        return found
    if not _debian_root():
        raise Refusal("no Chromium is installed.", "Install the package chromium, or name a browser in PKB_CHROMIUM.")
    say("Installing Chromium and fonts with apt-get")
    for command in (["apt-get", "update"], ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES]):
        finished = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"},
        )
        if finished.returncode != 0:
            evidence = (finished.stdout + finished.stderr).splitlines()[-10:]
            raise Refusal(f"'{' '.join(command)}' failed.", "Install the package chromium by hand.", evidence)
    if found := find():
        return found
    raise Refusal("apt-get installed chromium, but it is not on the path.", "Name it in PKB_CHROMIUM.")


def _has_fonts() -> bool:
    """False where pages would show boxes instead of letters."""
    lister = shutil.which("fc-list")
    return lister is not None and bool(subprocess.run([lister], capture_output=True, check=False).stdout.strip())


def _debian_root() -> bool:
    release = Path("/etc/os-release")
    debian = release.exists() and "ID=debian" in release.read_text().splitlines()
    return debian and os.geteuid() == 0 and shutil.which("apt-get") is not None
