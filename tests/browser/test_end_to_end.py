"""The whole way of a person: sign up, found a team, enter a model, drop six files, watch six verdicts, find the row.

Real Chromium, gunicorn, broker, Celery, sandbox and judge; nothing is stubbed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser.conftest import complaints
from tests.browser.site import RunningSite

pytestmark = [pytest.mark.browser, pytest.mark.sandbox]

SIX = sorted((Path(__file__).parent / "six").glob("*.py"))
VERDICTS = {
    "13 gemm_allreduce": "correct",
    "1 allreduce": "wrong values",
    "2 allgather": "runtime error",
    "27 moe_all2all_primitive": "deadlock",
    "36 ulysses_gather_seq_scatter_heads": "wrong values",
    "73 vocab_parallel_cross_entropy_loss": "wrong structure",
}
PASSWORD = "correct horse battery staple"
MINUTES = 60_000  # milliseconds

# Makes the drop that a person makes: files in a DataTransfer, and the events that the browser sends with them.
DROP = """
(zone, files) => {
  const transfer = new DataTransfer();
  for (const { name, text } of files) transfer.items.add(new File([text], name, { type: "text/x-python" }));
  for (const kind of ["dragenter", "dragover", "drop"]) {
    zone.dispatchEvent(new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: transfer }));
  }
}
"""


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningSite]:
    site = RunningSite(tmp_path)
    try:
        site.start()
        yield site
    finally:
        site.stop()


def test_from_sign_up_to_the_ranking(running: RunningSite, open_context: Callable[..., BrowserContext]) -> None:
    page = open_context(base_url=running.address).new_page()
    page.set_default_timeout(30_000)
    found = complaints(page)
    page.goto("/")
    expect(page.get_by_text("No run is ranked here yet")).to_be_visible()

    sign_up(page, running)
    drop_six_files(page)
    confirm_as_new_team(page)
    watch_six_verdicts(page, running)
    look_at_a_failure(page)
    find_the_row(page)
    assert found == []


def sign_up(page: Page, running: RunningSite) -> None:
    page.get_by_role("link", name="Sign up").click()
    page.get_by_label("Email").fill("ada@example.org")
    page.get_by_label("Username").fill("ada")
    page.get_by_label("Password", exact=True).fill(PASSWORD)
    page.get_by_label("Password (again)").fill(PASSWORD)
    page.locator("main button[type=submit]").click()
    expect(page.get_by_role("heading")).to_contain_text("Verify")
    page.goto(running.link_in_mail())
    page.get_by_role("button", name="Confirm").click()
    page.goto("/accounts/login/?next=/submit/")
    page.get_by_label("Login").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.locator("main button[type=submit]").click()
    page.wait_for_url("**/submit/")


def drop_six_files(page: Page) -> None:
    files = [{"name": path.name, "text": path.read_text()} for path in SIX]
    page.locator("#drop").evaluate(DROP.strip(), files)
    expect(page.locator("#chosen")).to_contain_text("6 files")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#findings tr.accepted")).to_have_count(6)
    expect(page.get_by_text("6 files can be judged")).to_be_visible()


def confirm_as_new_team(page: Page) -> None:
    page.get_by_role("link", name="Found a team").click()
    page.get_by_label("Name").fill("Ada's team")
    page.get_by_role("button", name="Found the team").click()
    page.get_by_role("link", name="Enter a model of Ada's team").click()
    page.get_by_label("Name").fill("Analytical Engine")
    page.get_by_label("Organisation").fill("Babbage & Co")
    page.get_by_label("The weights are published").check()
    page.get_by_role("button", name="Enter the model").click()
    expect(page.get_by_label("Model", exact=True).locator("option:checked")).to_have_text(
        "Analytical Engine (Ada's team)"
    )
    expect(page.get_by_label("Backend")).to_have_value("pytorch")
    page.get_by_label("4 ranks on the CPU, gloo").check()
    page.get_by_label("Precision").select_option("fp32")
    page.get_by_label("We may have these files run").check()
    page.get_by_role("button", name="Confirm and judge 6 files").click()
    page.wait_for_url("**/runs/*/")


def watch_six_verdicts(page: Page, running: RunningSite) -> None:
    """The page updates itself: it is not loaded again before the last verdict, which brings the charts."""
    expect(page.get_by_text("of 6 files have a verdict")).to_be_visible()
    page.evaluate("window.notReloaded = true")
    expect(page.get_by_text(re.compile("[1-5] of 6 files have a verdict"))).to_be_visible(timeout=5 * MINUTES)
    assert page.evaluate("window.notReloaded") is True
    try:
        expect(page.locator("#live[hx-get]")).to_have_count(0, timeout=5 * MINUTES)
    except AssertionError:
        pytest.fail(f"not every file has a verdict\n{page.locator('#live').inner_text()}\n{running.logs()}")
    page.wait_for_load_state()
    states = {}
    for cell in page.locator(".cell:not(.missing)").all():
        name, _, state = cell.inner_text().partition("\n")
        states[name.strip()] = state.strip().lstrip("▲▼=✓✗! ").partition(",")[0]
    assert states == VERDICTS, json.dumps(states, indent=1)


def look_at_a_failure(page: Page) -> None:
    run = page.url
    page.locator(".cell", has_text="ulysses_gather_seq_scatter_heads").locator("a").click()
    expect(page.get_by_text("rank 3's share missing").first).to_be_visible()
    expect(page.get_by_role("region", name="Source of the submission")).to_contain_text("received[-1].zero_()")
    page.goto(run)
    page.locator(".cell", has_text="gemm_allreduce").locator("a").click()
    expect(page.get_by_role("heading", name="Timing")).to_be_visible()
    assert page.locator("circle.candidate").count() >= 5


def find_the_row(page: Page) -> None:
    page.goto("/")
    row = page.locator("tbody tr", has_text="Analytical Engine")
    expect(row).to_contain_text("open weights")
    expect(row.get_by_role("link").nth(1)).to_have_text("1/" + page_count(page))
    expect(row.locator("svg.strip g.t-tensor title")).to_contain_text("Tensor: 1 of")


def page_count(page: Page) -> str:
    """N of the suite, as the page says it."""
    lead = page.locator(".lead").inner_text()
    return lead.partition("answers the ")[2].partition(" ")[0]
