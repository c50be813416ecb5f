"""Takes a picture of every page of a running site: light, dark, and at the width of a phone.

    python scripts/screenshots.py http://127.0.0.1:8000 FOLDER [--user NAME --password-file FILE] [--readme]

Pages that hang on objects (a run, a submission, a model, a team, a problem) are found by following links, so the
pictures show whatever the site holds. ``--readme`` also writes docs/images/leaderboard.png.
Needs the dev extra; Chromium from PKB_CHROMIUM or the PATH.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

README_PICTURE = Path(__file__).resolve().parent.parent / "docs" / "images" / "leaderboard.png"
FLAGS = ["--disable-background-networking", "--disable-component-update", "--disable-sync", "--no-first-run"]
WIDTHS = {"light": (1280, "light"), "dark": (1280, "dark"), "phone": (390, "light")}
FIXED = {
    "leaderboard": "/",
    "models": "/models/",
    "problems": "/problems/",
    "analysis": "/analysis/",
    "search": "/search/?q=a",
    "methodology": "/methodology/",
    "published": "/published/",
    "about": "/about/",
    "cite": "/cite/",
    "status": "/status/",
    "login": "/accounts/login/",
    "signup": "/accounts/signup/",
    "reset": "/accounts/password/reset/",
    "missing": "/no-such-page/",
}
SIGNED_IN = {
    "submit": "/submit/",
    "teams": "/teams/",
    "team-new": "/teams/new/",
    "email": "/accounts/email/",
    "admin": "/admin/",
}
# Name -> (page to start from, selector of the link that is followed).
FOUND = {
    "model": ("/models/", "main tbody th a"),
    "run": ("/", "main tbody td a[href^='/runs/']"),
    "submission-correct": ("run", "main .cell.s-good a"),
    "submission-failed": ("run", "main .cell.s-bad a"),
    "team": ("run", "main a[href^='/teams/']"),
    "compare": ("run", "main a[href^='/compare/']"),
    "problem": ("/problems/", "main tbody th a"),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("site")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--user", default="")
    parser.add_argument("--password-file", type=Path)
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--only", default="", help="names of pages, separated by commas")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    chromium = os.environ.get("PKB_CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if not chromium:
        sys.exit("No Chromium found: install it or set PKB_CHROMIUM to its path.")
    root = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=[*FLAGS, *root])
        for variant, (width, scheme) in WIDTHS.items():
            page = _page(browser, options.site, width, scheme)
            if options.user:
                _sign_in(page, options.user, options.password_file.read_text().strip())
            for name, address in _addresses(page, signed_in=bool(options.user)):
                if options.only and name not in options.only.split(","):
                    continue
                _take(page, address, options.folder / f"{name}-{variant}.png")
                wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                print(f"{name:20} {variant:6} {address}" + (f"  SCROLLS SIDEWAYS by {wide} px" if wide > 0 else ""))
            page.context.close()
        if options.readme:
            page = _page(browser, options.site, 1280, "light")
            page.goto("/")
            README_PICTURE.parent.mkdir(parents=True, exist_ok=True)
            page.screenshot(path=README_PICTURE)
        browser.close()
    return 0


def _page(browser: Browser, site: str, width: int, scheme: str) -> Page:
    context = browser.new_context(
        base_url=site, viewport={"width": width, "height": 800}, color_scheme="dark" if scheme == "dark" else "light"
    )
    return context.new_page()


def _sign_in(page: Page, user: str, password: str) -> None:
    page.goto("/accounts/login/")
    page.fill("input[name=login]", user)
    page.fill("input[name=password]", password)
    page.click("main button[type=submit]")


def _addresses(page: Page, *, signed_in: bool) -> Iterator[tuple[str, str]]:
    found: dict[str, str] = {}
    for name, (start, selector) in FOUND.items():
        page.goto(found.get(start, start))
        links = page.locator(selector)
        if links.count():
            found[name] = str(links.first.get_attribute("href"))
    yield from {**FIXED, **(SIGNED_IN if signed_in else {}), **found}.items()


def _take(page: Page, address: str, path: Path) -> None:
    page.goto(address)
    for figure in page.locator("figure.plot").all():  # charts are drawn when they come near the window
        figure.scroll_into_view_if_needed()
        figure.and_(page.locator("[data-drawn]")).wait_for()
    page.screenshot(path=path, full_page=True)


if __name__ == "__main__":
    sys.exit(main())
