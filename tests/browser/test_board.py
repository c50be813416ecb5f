"""The leaderboard in a real browser: filters, order, charts, without JavaScript, by keyboard, and what axe finds."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import BrowserContext, Page, expect

from problems.models import Suite
from tests.browser.conftest import complaints
from tests.factories import ProblemFactory, ProblemVersionFactory, SuiteFactory
from tests.pages.boards import rich_board

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

Open = Callable[..., BrowserContext]
RULES = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]}}
ADDRESSES = ("/", "/?charts=on&columns=more&columns=compatible", "/?type=graph&also=on", "/?backend=abacus")


@pytest.fixture
def board(db: None) -> Suite:
    suite = SuiteFactory(size=0, is_current=True)
    suite.problem_versions.set(ProblemVersionFactory(problem=ProblemFactory(number=n)) for n in range(1, 5))
    rich_board(suite)
    return suite


def names(page: Page) -> list[str]:
    return page.locator("table.board tbody tr:not(.pinned) th a").all_inner_texts()


def draw_charts(page: Page) -> None:
    """Bring every chart near the window and wait until it is drawn."""
    for chart in page.locator("figure.plot").all():
        chart.scroll_into_view_if_needed()
        expect(chart).to_have_attribute("data-drawn", "yes", timeout=30_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_of_level_a_or_aa(board: Suite, live_server: object, open_context: Open, scheme: str) -> None:
    page = open_context(color_scheme=scheme, base_url=str(live_server)).new_page()
    for address in ADDRESSES:
        page.goto(address)
        draw_charts(page)
        found = Axe().run(page, options=RULES)
        assert found.violations_count == 0, f"{address}\n{found.generate_report()}"


def test_filters_order_and_pages_stand_in_the_address(board: Suite, live_server: object, open_context: Open) -> None:
    page = open_context(base_url=str(live_server)).new_page()
    page.goto("/")
    expect(page.locator("tr.pinned")).to_contain_text("Reference")
    by_rank = names(page)
    page.select_option("#id_weights", "closed")
    page.get_by_label("PKB-compatible").check()
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**/?*weights=closed*")
    expect(page.locator("thead")).to_contain_text("PKB geomean")
    assert names(page) == [name for name in by_rank if name != "Beta"]
    page.get_by_role("link", name="Cost").click()
    page.wait_for_url("**/?*sort=cost*")
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Cost")
    assert names(page)[0] == "Gamma"
    assert "weights=closed" in page.url, "sorting keeps the filters"
    page.go_back()
    page.wait_for_url(lambda address: "sort=cost" not in address and "weights=closed" in address)
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Rank")
    page.go_back()
    page.wait_for_url(lambda address: "weights" not in address)
    expect(page.locator("table.board tbody tr:not(.pinned) th a")).to_have_text(by_rank)


def test_charts_are_drawn_on_demand_and_follow_the_keyboard(
    board: Suite, live_server: object, open_context: Open
) -> None:
    page = open_context(viewport={"width": 390, "height": 844}, base_url=str(live_server)).new_page()
    found, asked = complaints(page), []
    page.on("request", lambda request: asked.append(request.url))
    page.goto("/")
    page.wait_for_load_state("networkidle")
    assert not [address for address in asked if "plot" in address], "no chart, no script for it"
    page.get_by_role("link", name="Show charts").click()
    page.wait_for_url("**/?*charts=on*")
    draw_charts(page)
    assert page.locator("figure.plot").count() == 4
    width = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert width <= 0, f"{width} px too wide"
    chart = page.locator("#plot-fast-p")
    chart.locator(".canvas").focus()
    page.keyboard.press("ArrowRight")
    expect(chart.locator(".readout")).to_have_text(re.compile(r"Alpha, faster than 0\.25×: \d+\.\d %"))
    table = chart.locator("details.same")
    expect(table.locator("table")).to_be_hidden()
    table.locator("summary").click()
    expect(table.get_by_role("row", name=re.compile("Alpha"))).to_be_visible()
    assert found == []


def test_without_javascript_charts_are_their_tables(board: Suite, live_server: object, open_context: Open) -> None:
    page = open_context(java_script_enabled=False, base_url=str(live_server)).new_page()
    page.goto("/")
    page.get_by_role("link", name="Show charts").click()
    page.wait_for_url("**/?*charts=on*")
    for title in ("fast_p: how many", "Correct by type", "Correct by difficulty", "Correct against cost"):
        region = page.get_by_role("region", name=re.compile(f"{title}.* as a table"))
        expect(region).to_be_visible()
        expect(region).to_contain_text("Alpha")
    page.select_option("#id_difficulty", "4")
    page.get_by_role("button", name="Show", exact=True).click()
    page.wait_for_url("**/?*difficulty=4*")
    expect(page.get_by_text("over the 1 problem of difficulty 4 alone")).to_be_visible()
    assert "charts=on" in page.url


def test_the_board_is_worked_by_keyboard_alone(board: Suite, live_server: object, open_context: Open) -> None:
    page = open_context(base_url=str(live_server)).new_page()
    page.goto("/")
    page.locator("#id_track").focus()
    page.keyboard.press("m")  # the first choice with this letter
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "Show":
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/?*track=multi-sample*")
    expect(page.locator("table.board tbody tr:not(.pinned) th a")).to_have_text(["Delta"])
    page.get_by_role("link", name="Model", exact=True).focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/?*sort=model*")
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Model")
