"""Pages with charts: drawn under the site's policy, readable as tables, by keyboard, on a phone and in the dark."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.urls import reverse
from playwright.sync_api import BrowserContext, Page, expect

from leaderboard import scores
from leaderboard.models import Evaluation, EvaluationState, Track
from problems.models import Problem, Suite
from tests.browser.conftest import LEVELS, complaints
from tests.factories import (
    EvaluationFactory,
    ProblemFactory,
    ProblemVersionFactory,
    RankedModelFactory,
    RunFactory,
    SourceFileFactory,
    SubmissionFactory,
    SuiteFactory,
    VerdictFactory,
)
from tests.pages.site import with_report

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

Open = Callable[..., BrowserContext]


@pytest.fixture
def suite(db: None) -> Suite:
    suite = SuiteFactory(size=0, is_current=True)
    kinds = ("collective", "tensor", "sequence", "expert", "graph", "spatial")
    problems = [
        ProblemFactory(number=n, slug=f"a_problem_with_a_long_name_{n}", type=kinds[n % 6]) for n in range(1, 9)
    ]
    suite.problem_versions.set(ProblemVersionFactory(problem=problem) for problem in problems)
    return suite


@pytest.fixture
def evaluations(suite: Suite) -> list[Evaluation]:
    """An agent's run of three steps and a run with one answer a problem, on the same target."""
    agent = _evaluation(suite, "An-Agent-With-A-Very-Long-Name-480B", Track.AGENTIC, steps=3)
    return [agent, _evaluation(suite, "Model Two", Track.SINGLE_SHOT, steps=1)]


def _evaluation(suite: Suite, name: str, track: Track, *, steps: int) -> Evaluation:
    run = RunFactory(model=RankedModelFactory(name=name), track=track, cost_usd=12)
    evaluation = EvaluationFactory(run=run, suite=suite, state=EvaluationState.COMPLETED)
    for problem in Problem.objects.all():
        for step in range(steps):
            _answer(evaluation, problem, step, good=(problem.number + step) % 3 != 0)
    scores.materialise(evaluation)
    return evaluation


def _answer(evaluation: Evaluation, problem: Problem, step: int, *, good: bool) -> None:
    text = f"def solution(x):\n    y = x * {step}\n    return y\n"
    source = SourceFileFactory(text=text)
    speedup = 0.6 + 0.25 * problem.number + 0.1 * step
    timed = {
        "speedup": speedup,
        "decision": "faster" if speedup > 1.1 else "slower",
        "candidate_seconds": 1e-4 * problem.number / speedup,
        "bound_seconds": 2e-5 * problem.number,
        "serial_bound_seconds": 4e-5 * problem.number,
        "utilisation": 0.2 * speedup,
        "mechanisms": ["SM peer access", "TMA (static)"],
    }
    agentic = evaluation.run.track == Track.AGENTIC
    verdict = VerdictFactory(
        evaluation=evaluation,
        submission=SubmissionFactory(
            run=evaluation.run,
            problem=problem,
            step=step,
            source=source,
            **({"cost_usd": 0.05 * problem.number, "cost_tokens": 2_000 + 500 * step} if agentic else {}),
        ),
        code="correct" if good else "wrong_values",
        failed_phase="" if good else "trials",
        **(timed if good else {"mechanisms": ["torch.distributed"]}),
    )
    if problem.number <= 3:
        with_report(verdict)


def charts(evaluations: list[Evaluation]) -> dict[str, set[str]]:
    """Address of each page with charts -> the keys of its charts."""
    agent, other = evaluations
    pair = f"run={agent.run.public_id}&run={other.run.public_id}"
    return {
        reverse("run", args=[agent.run.public_id]): {
            "waterfall",
            "roofline",
            "steps",
            "step-costs",
            "failures",
            "mechanisms",
        },
        reverse("run", args=[other.run.public_id]): {"waterfall", "roofline", "failures", "mechanisms"},
        reverse("model", args=[agent.run.model.slug]): {"field", "failures", "mechanisms"},
        reverse("problem", args=[1]): {"distribution", "best"},
        reverse("analysis"): {"failures", "mechanisms"},
        f"{reverse('compare')}?{pair}&problem=1": {"speedups", "types"},
    }


def others(evaluations: list[Evaluation]) -> list[str]:
    """Pages of results without charts."""
    agent = evaluations[0]
    problem = {"problem__number": 1}
    steps = agent.run.submissions.filter(**problem).order_by("step")
    return [
        *(reverse("submission", args=[step.public_id]) for step in (steps[1], steps[2])),
        f"{reverse('search')}?q=problem",
        reverse("search"),
        reverse("compare"),
        reverse("problems"),
        reverse("models"),
    ]


def draw(page: Page) -> None:
    """Bring every chart near the window and wait until it is drawn."""
    for figure in page.locator("figure.plot").all():
        figure.scroll_into_view_if_needed()
        expect(figure).to_have_attribute("data-drawn", "yes", timeout=60_000)


def sideways(page: Page) -> int:
    return int(page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def test_charts_are_drawn_on_a_phone_and_axe_finds_nothing(
    evaluations: list[Evaluation], live_server: object, open_context: Open
) -> None:
    """No violation of WCAG A or AA, nothing wider than the window, no complaint about policy or script."""
    page = open_context(viewport={"width": 390, "height": 844}, base_url=str(live_server)).new_page()
    page.set_default_timeout(60_000)
    found = complaints(page)
    expected = charts(evaluations)
    for address in (*expected, *others(evaluations)):
        page.goto(address)
        draw(page)
        keys = {str(f.get_attribute("id")).removeprefix("plot-") for f in page.locator("figure.plot").all()}
        assert keys == expected.get(address, set()), address
        assert sideways(page) <= 0, f"{address} is {sideways(page)} px too wide"
        result = Axe().run(page, options=LEVELS)
        assert result.violations_count == 0, f"{address}\n{result.generate_report()}"
    assert found == []


def test_without_javascript_the_tables_say_it_all(
    evaluations: list[Evaluation], live_server: object, open_context: Open
) -> None:
    context = open_context(java_script_enabled=False, viewport={"width": 390, "height": 844}, base_url=str(live_server))
    page = context.new_page()
    for address, keys in charts(evaluations).items():
        page.goto(address)
        for key in keys:
            figure = page.locator(f"#plot-{key}")
            expect(figure.locator("tbody tr").first).to_be_visible()
            expect(figure.locator(".canvas")).to_be_hidden()


def test_the_keyboard_walks_through_a_chart_and_opens_its_table(
    evaluations: list[Evaluation], live_server: object, open_context: Open
) -> None:
    page = open_context(base_url=str(live_server)).new_page()
    page.goto(reverse("run", args=[evaluations[1].run.public_id]))
    draw(page)
    figure = page.locator("#plot-waterfall")
    figure.locator(".canvas").focus()
    page.keyboard.press("ArrowRight")
    expect(figure.locator(".readout")).to_contain_text("8 a_problem_with_a_long_name_8, faster 2.60×")
    expect(figure.locator(".hoverlayer .hovertext")).to_have_count(1)
    page.keyboard.press("ArrowLeft")
    expect(figure.locator(".readout")).to_contain_text("slower")
    expect(figure.locator("tbody")).to_be_hidden()
    page.keyboard.press("Tab")
    expect(figure.locator("summary")).to_be_focused()
    page.keyboard.press("Enter")
    expect(figure.locator("tbody tr").first).to_be_visible()


def test_a_chart_follows_the_theme(evaluations: list[Evaluation], live_server: object, open_context: Open) -> None:
    page = open_context(color_scheme="light", base_url=str(live_server)).new_page()
    page.goto(reverse("run", args=[evaluations[1].run.public_id]))
    draw(page)
    text = page.locator("#plot-failures .xtick text").first
    before = text.evaluate("e => getComputedStyle(e).fill")
    page.emulate_media(color_scheme="dark")
    expect(page.locator("#plot-failures .xtick text").first).not_to_have_css("fill", before)
    expect(page.locator("#plot-failures .xtick text").first).to_have_css("fill", "rgb(229, 233, 238)")  # --ink


def test_search_is_one_box_away_from_everywhere(
    evaluations: list[Evaluation], live_server: object, open_context: Open
) -> None:
    page = open_context(base_url=str(live_server)).new_page()
    page.goto("/status/")
    page.get_by_role("searchbox", name="Model, problem, team or id").fill("two")
    page.keyboard.press("Enter")
    page.wait_for_url("**/search/?q=two")
    page.get_by_role("link", name="Model Two").click()
    page.wait_for_url("**/models/**")
    expect(page.locator("h1")).to_contain_text("Model Two")
    page.go_back()
    expect(page.get_by_text("1 found for “two”")).to_be_visible()


def test_two_runs_are_compared_from_the_page_of_one(
    evaluations: list[Evaluation], live_server: object, open_context: Open
) -> None:
    page = open_context(base_url=str(live_server)).new_page()
    page.goto(reverse("run", args=[evaluations[0].run.public_id]))
    page.get_by_role("link", name="Compare …").click()
    page.wait_for_url("**/compare/**")
    expect(page.get_by_label("Run 1")).to_have_value(evaluations[0].run.public_id)
    page.get_by_label("Run 2").fill(evaluations[1].run.public_id)
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_role("heading", name="Win, tie, loss")).to_be_visible()
    page.get_by_role("link", name="Compare the files of A and B for problem 1", exact=True).click()
    expect(page.locator("#files .d-removed")).to_contain_text("y = x * 2")
