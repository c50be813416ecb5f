"""The longest pages, those of the suite's real problems, on a phone and in both colour schemes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from django.conf import settings
from django.urls import reverse
from playwright.sync_api import BrowserContext, Page, expect

from problems import catalogue
from tests.browser.conftest import complaints

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

Open = Callable[..., BrowserContext]
CONTRAST = Path(__file__).with_name("contrast.js")


@pytest.fixture
def numbers(db: None) -> list[int]:
    manifest = json.loads(settings.SUITE_MANIFEST.read_text())
    catalogue.load(manifest)
    return [entry["id"] for entry in manifest["problems"]]


def sideways(page: Page) -> int:
    """Pixels by which the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_no_problem_scrolls_sideways_on_a_phone(numbers: list[int], live_server: object, open_context: Open) -> None:
    page = open_context(viewport={"width": 390, "height": 844}, base_url=str(live_server)).new_page()
    found = complaints(page)
    for number in numbers:
        page.goto(reverse("problem", args=[number]))
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert sideways(page) <= 0, f"the page of problem {number} is {sideways(page)} px too wide"
    page.goto(reverse("problem-prompt", args=[numbers[-1]]))
    assert sideways(page) <= 0
    assert found == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_problem_can_be_read(numbers: list[int], live_server: object, open_context: Open, scheme: str) -> None:
    """WCAG AA: 4.5 : 1 for every text, tables, source and prompt included."""
    page = open_context(color_scheme=scheme, base_url=str(live_server)).new_page()
    for address in (reverse("problem", args=[13]), reverse("problem-prompt", args=[13])):
        page.goto(address)
        page.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
        assert page.evaluate(CONTRAST.read_text()) == [], address


def test_a_prompt_is_chosen_on_the_page_of_the_problem(
    numbers: list[int], live_server: object, open_context: Open
) -> None:
    """Without JavaScript, too: it is a form."""
    page = open_context(java_script_enabled=False, base_url=str(live_server)).new_page()
    page.goto(reverse("problem", args=[13]))
    page.get_by_label("Backend").select_option("triton")
    page.get_by_label("Hardware").select_option("b200x8")
    page.get_by_role("button", name="Show the prompt").click()
    expect(page.get_by_role("region", name="Prompt")).to_contain_text("a Triton implementation for 8 × B200")
    page.get_by_role("link", name="As plain text").click()
    expect(page.locator("body")).to_contain_text("a Triton implementation for 8 × B200")
