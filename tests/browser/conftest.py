"""A real Chromium for the tests of this folder, and a site to look at."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

FLAGS = [
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
# What axe looks for: WCAG 2.2, levels A and AA.
LEVELS = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """The browser, for the tests of this folder only: Playwright's event loop must be gone before others run."""
    path = os.environ.get("PKB_CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
    )
    if path is None:
        pytest.skip("no Chromium: install one (Debian: apt-get install chromium) or set PKB_CHROMIUM to its path")
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    before = os.environ.get("DJANGO_ALLOW_ASYNC_UNSAFE")
    # Playwright's synchronous interface runs an event loop under the test, which Django takes for asynchronous code.
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "yes"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS, *root])
        yield browser
        browser.close()
    if before is None:
        del os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"]


@pytest.fixture
def open_context(chromium: Browser) -> Iterator[Callable[..., BrowserContext]]:
    """Makes browser contexts (``viewport``, ``color_scheme``, ``java_script_enabled`` …) that end with the test."""
    contexts: list[BrowserContext] = []

    def open_context(**options: Any) -> BrowserContext:
        context = chromium.new_context(**options)
        context.set_default_timeout(10_000)
        contexts.append(context)
        return context

    yield open_context
    for context in contexts:
        context.close()


def complaints(page: Page) -> list[str]:
    """Collects what the page complains of from now on: errors in scripts, violations of the content policy."""
    found: list[str] = []
    page.on("pageerror", lambda error: found.append(str(error)))
    page.on("console", lambda message: found.append(message.text) if message.type == "error" else None)
    return found
