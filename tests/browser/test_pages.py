"""The pages in a real browser: on a phone, in the dark, by keyboard, without JavaScript, under the content policy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client
from django.urls import reverse
from playwright.sync_api import BrowserContext, Page, expect

from leaderboard.models import Attempt, Evaluation, EvaluationState, Role, RunState, Upload
from leaderboard.pages import docs
from tests.browser.conftest import LEVELS, complaints
from tests.factories import (
    AttemptFactory,
    EvaluationFactory,
    MembershipFactory,
    ProblemFactory,
    ProblemVersionFactory,
    RankedModelFactory,
    RunFactory,
    SubmissionFactory,
    SuiteFactory,
    TargetFactory,
    TeamFactory,
    UserFactory,
    VerdictFactory,
    evaluated_run,
)
from tests.pages.site import Site, with_report

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

Open = Callable[..., BrowserContext]
SIX = Path(__file__).parent / "six"
CONTRAST = Path(__file__).with_name("contrast.js")
LONG = "a_rather_long_name_of_a_problem_with_many_words_and_no_space"


@pytest.fixture
def site(db: None) -> Site:
    """Long names everywhere: what is narrow must cope with them."""
    suite = SuiteFactory(size=0, is_current=True)
    problems = [ProblemFactory(number=n, slug=f"{LONG}_{n}", title="All-reduce of a tensor " * 3) for n in (1, 2, 3, 4)]
    suite.problem_versions.set(ProblemVersionFactory(problem=problem) for problem in problems)
    TargetFactory(label="Runs on any machine.")
    team = TeamFactory(name="The Kernel Laboratory of a University with a Long Name", slug="kernel-lab")
    owner = UserFactory(username="olga")
    MembershipFactory(team=team, user=owner, role=Role.OWNER)
    model = RankedModelFactory(
        name="A-Model-With-A-Very-Long-Name-480B-Instruct", slug="long", team=team, open_weights=True
    )
    evaluation = evaluated_run("faster", "tie", "deadlock", suite=suite, model=model, created_by=owner)
    for verdict in evaluation.verdicts.all():
        with_report(verdict)
    return Site(suite, team, owner, owner, owner, owner, evaluation)


def addresses(site: Site) -> list[str]:
    submissions = site.run.submissions.order_by("problem__number")
    upload = Upload.objects.create(
        user=site.owner,
        findings=[
            {"path": f"folder/{LONG}.py", "status": "refused", "code": "x", "sentence": "No problem is called so. " * 4,
             "problem": None, "slug": "", "sample": 0, "step": 0, "backend": "", "size": 12, "warnings": []},
            {"path": f"folder/1_{LONG}_1.py", "status": "accepted", "code": "accepted", "sentence": "Answers it.",
             "problem": 1, "slug": f"{LONG}_1", "sample": 0, "step": 0, "backend": "cuda", "size": 12, "warnings": []},
        ],
    )  # fmt: skip
    return [
        *(
            reverse(r)
            for r in ("leaderboard", "models", "problems", "methodology", "about", "cite", "published", "status")
        ),
        *(reverse(r) for r in ("submit", "teams", "team-create", "account_email", "account_change_password")),
        *(reverse(r) for r in ("analysis", "search", "compare")),
        f"{reverse('search')}?q=model",
        f"{reverse('compare')}?run={site.run.public_id}&run=nothinghere1",
        reverse("documents"),
        *(reverse("document", args=[document.name]) for document in docs.documents()),
        reverse("problem", args=[1]),
        reverse("problem-prompt", args=[1]),
        reverse("model", args=["long"]),
        reverse("team", args=[site.team.slug]),
        reverse("model-create", args=[site.team.slug]),
        reverse("run", args=[site.run.public_id]),
        reverse("run-withdraw", args=[site.run.public_id]),
        *(reverse("submission", args=[submission.public_id]) for submission in submissions),
        reverse("preview", args=[upload.pk]),
        "/no/such/page/",
    ]


def sign_in(context: BrowserContext, site: Site, address: str) -> None:
    client: Client = site.client("owner")
    value = client.cookies[settings.SESSION_COOKIE_NAME].value
    context.add_cookies([{"name": settings.SESSION_COOKIE_NAME, "value": value, "url": address}])


def sideways(page: Page) -> int:
    """Pixels by which the page is wider than the window."""
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_no_page_scrolls_sideways_on_a_phone_or_breaks_the_policy(
    site: Site, live_server: object, open_context: Open
) -> None:
    context = open_context(viewport={"width": 390, "height": 844}, base_url=str(live_server))
    sign_in(context, site, str(live_server))
    page = context.new_page()
    found = complaints(page)
    for address in addresses(site):
        page.goto(address)
        assert sideways(page) <= 0, f"{address} is {sideways(page)} px too wide"
        expect(page.locator("h1")).to_have_count(1)
    # The browser itself reports the status of the page that is meant to be missing.
    assert [text for text in found if "404" not in text] == []


def test_axe_finds_nothing_of_level_a_or_aa(site: Site, live_server: object, open_context: Open) -> None:
    context = open_context(base_url=str(live_server))
    sign_in(context, site, str(live_server))
    page = context.new_page()
    for address in addresses(site):
        page.goto(address)
        result = Axe().run(page, options=LEVELS)
        assert result.violations_count == 0, f"{address}\n{result.generate_report()}"


def test_small_controls_can_be_hit_with_a_finger(site: Site, live_server: object, open_context: Open) -> None:
    page = open_context(viewport={"width": 390, "height": 844}, base_url=str(live_server)).new_page()
    page.goto("/")
    for control in page.locator("nav[aria-label=Main] a, .filters select, .filters button").all():
        box = control.bounding_box()
        assert box is not None and box["height"] >= 24, control.inner_text()  # WCAG 2.2, 2.5.8


def test_dark_follows_the_system_and_the_button_overrules_it(
    live_server: object, site: Site, open_context: Open
) -> None:
    page = open_context(color_scheme="dark", base_url=str(live_server)).new_page()
    page.goto("/")

    def background() -> str:
        return str(page.evaluate("getComputedStyle(document.body).backgroundColor"))

    dark = background()
    assert sum(map(int, dark[4:-1].split(","))) < 150, dark
    button = page.get_by_role("button", name="Theme: system")
    button.click()
    assert background() == "rgb(255, 255, 255)"
    page.goto("/problems/")
    assert background() == "rgb(255, 255, 255)", "the choice holds on the next page"
    page.get_by_role("button", name="Theme: light").click()
    assert background() == dark


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_its_ground(site: Site, live_server: object, open_context: Open, scheme: str) -> None:
    """WCAG AA: 4.5 : 1 for every text that is shown, as the browser computes the colours."""
    context = open_context(color_scheme=scheme, base_url=str(live_server))
    sign_in(context, site, str(live_server))
    page = context.new_page()
    for address in addresses(site):
        page.goto(address)
        assert page.evaluate(CONTRAST.read_text()) == [], address


def test_everything_is_reached_by_keyboard(site: Site, live_server: object, open_context: Open) -> None:
    page = open_context(base_url=str(live_server)).new_page()
    page.goto("/")
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    expect(page.locator("#id_target")).to_be_focused()
    page.locator("#id_track").focus()
    page.keyboard.type("Agentic")
    page.keyboard.press("Enter")  # opens or sends, as the browser has it; the button sends for certain
    page.get_by_role("button", name="Show").focus()
    page.keyboard.press("Enter")
    page.wait_for_url("**/?*track=agentic*")
    expect(page.get_by_text("No run fits this selection")).to_be_visible()
    page.go_back()
    table = page.get_by_role("region", name="Ranking")
    table.focus()
    expect(table).to_be_focused()
    outline = table.evaluate("e => getComputedStyle(e).outlineStyle")
    assert outline == "solid", "the focus must be seen"


def test_sorting_and_filtering_stand_in_the_address(site: Site, live_server: object, open_context: Open) -> None:
    evaluated_run("faster", "faster", "faster", suite=site.suite, model=RankedModelFactory(name="Fast"))
    page = open_context(base_url=str(live_server)).new_page()
    page.goto("/")
    expect(page.locator("tbody th a").first).to_have_text("Fast")
    page.get_by_role("link", name="Model", exact=True).click()
    expect(page.locator("tbody th a").first).to_have_text("A-Model-With-A-Very-Long-Name-480B-Instruct")
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Model")
    page.select_option("#id_type", "tensor")
    page.get_by_role("button", name="Show").click()
    page.wait_for_url(lambda address: "sort=model" in address and "type=tensor" in address)
    # Each step back is waited for: a second one in mid-navigation is refused by the browser.
    page.go_back()
    page.wait_for_url(lambda address: "sort=model" in address and "type=tensor" not in address)
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Model")
    page.go_back()
    expect(page.locator("tbody th a").first).to_have_text("Fast")


def test_without_javascript_files_come_to_the_preview(site: Site, live_server: object, open_context: Open) -> None:
    context = open_context(java_script_enabled=False, base_url=str(live_server))
    sign_in(context, site, str(live_server))
    page = context.new_page()
    page.goto("/submit/")
    expect(page.locator("#drop-hint")).to_be_hidden()
    page.set_input_files("input[name=files]", [SIX / "1_allreduce_pytorch.py", SIX / "13_gemm_allreduce_pytorch.py"])
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#findings tr.accepted")).to_have_count(1)
    expect(page.locator("#findings tr.refused")).to_contain_text("No problem")
    page.goto("/")
    page.select_option("#id_track", "agentic")
    page.get_by_role("button", name="Show").click()
    expect(page.get_by_text("No run fits this selection")).to_be_visible()


def test_a_dropped_folder_keeps_its_paths(site: Site, live_server: object, open_context: Open) -> None:
    context = open_context(base_url=str(live_server))
    sign_in(context, site, str(live_server))
    page = context.new_page()
    page.goto("/submit/")
    page.set_input_files("input[name=folder]", SIX)
    expect(page.locator("#chosen")).to_contain_text("6 files")
    page.get_by_role("button", name="Preview").click()
    expect(page.locator("#findings tbody tr")).to_have_count(6)
    expect(page.locator("#findings")).to_contain_text("six/13_gemm_allreduce_pytorch.py")


def test_a_running_run_follows_by_itself_and_then_stops_asking(
    site: Site, live_server: object, open_context: Open
) -> None:
    target = TargetFactory(name="cpu-gloo")
    evaluation: Evaluation = EvaluationFactory(
        run=RunFactory(model=site.run.model), suite=site.suite, target=target, state=EvaluationState.RUNNING
    )
    problem = site.submission.problem
    attempt: Attempt = AttemptFactory(
        evaluation=evaluation,
        submission=SubmissionFactory(run=evaluation.run, problem=problem),
        leased=True,
        phase="trials",
    )
    page = open_context(base_url=str(live_server)).new_page()
    found = complaints(page)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/live/" in request.url else None)
    page.goto(reverse("run", args=[evaluation.run.public_id]))
    cell = page.locator(".cell a")
    cell.focus()
    Attempt.objects.filter(pk=attempt.pk).update(phase_done=3, phase_total=5)
    expect(page.get_by_text("trials 3 of 5")).to_be_visible()
    expect(cell).to_be_focused()  # whoever walks by keyboard is not thrown back to the start
    Attempt.objects.filter(pk=attempt.pk).update(state="recorded")
    VerdictFactory(evaluation=evaluation, submission=attempt.submission, attempt=attempt)
    Evaluation.objects.filter(pk=evaluation.pk).update(state=EvaluationState.COMPLETED)
    expect(page.locator(".cell.s-good")).to_contain_text("correct, faster 2.00×")
    count = len(asked)
    page.wait_for_timeout(4_500)  # two intervals and a bit: silence can only be waited for
    assert len(asked) == count, "a finished run is not asked for again"
    assert found == []


def test_withdrawing_asks_first(site: Site, live_server: object, open_context: Open) -> None:
    context = open_context(base_url=str(live_server))
    sign_in(context, site, str(live_server))
    page = context.new_page()
    page.goto(reverse("run", args=[site.run.public_id]))
    page.get_by_role("link", name="Withdraw").click()
    page.get_by_label("Reason").fill("wrong folder")
    site.run.refresh_from_db()
    assert site.run.state == RunState.ACTIVE
    page.get_by_role("button", name="Withdraw the run").click()
    expect(page.get_by_text("wrong folder")).to_be_visible()
    site.run.refresh_from_db()
    assert site.run.state == RunState.WITHDRAWN
