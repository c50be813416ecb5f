"""Who gets what at which address. Every route of the site has its rows here, granted and refused on the same site.

``hidden`` answers like an address that does not exist: nobody learns that something private is there.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, reverse
from django.utils import timezone

from leaderboard import membership, scores
from leaderboard.models import Evaluation, Invitation, Run, RunState, Track, Upload, Visibility
from tests.factories import EvaluationFactory, evaluated_run
from tests.pages.site import Site, with_trace

OK, LOGIN, GONE, HIDDEN, DONE, STOP = 200, "to the login", "redirect", 404, "redirect", 286
WHO = ("anonymous", "stranger", "member", "owner", "maintainer")

# (method, route, state of the run) -> what anonymous, stranger, member, owner and maintainer get.
TABLE: dict[tuple[str, str, str], tuple[int | str, ...]] = {
    ("GET", "leaderboard", "public"): (OK, OK, OK, OK, OK),
    ("GET", "board-feed", "public"): (OK, OK, OK, OK, OK),
    ("GET", "board-picture", "public"): (OK, OK, OK, OK, OK),
    ("GET", "board-export", "public"): (OK, OK, OK, OK, OK),
    ("GET", "analysis", "public"): (OK, OK, OK, OK, OK),
    ("GET", "search", "public"): (OK, OK, OK, OK, OK),
    ("GET", "compare", "public"): (OK, OK, OK, OK, OK),
    ("GET", "compare", "private"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "compare", "embargoed"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "compare", "withdrawn"): (HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN),
    ("GET", "models", "public"): (OK, OK, OK, OK, OK),
    ("GET", "problems", "public"): (OK, OK, OK, OK, OK),
    ("GET", "problem", "public"): (OK, OK, OK, OK, OK),
    ("GET", "problem-prompt", "public"): (OK, OK, OK, OK, OK),
    ("GET", "problem-prompt-text", "public"): (OK, OK, OK, OK, OK),
    ("GET", "suite-prompts", "public"): (OK, OK, OK, OK, OK),
    ("GET", "methodology", "public"): (OK, OK, OK, OK, OK),
    ("GET", "published", "public"): (OK, OK, OK, OK, OK),
    ("GET", "cite", "public"): (OK, OK, OK, OK, OK),
    ("GET", "about", "public"): (OK, OK, OK, OK, OK),
    ("GET", "documents", "public"): (OK, OK, OK, OK, OK),
    ("GET", "document", "public"): (OK, OK, OK, OK, OK),
    ("GET", "status", "public"): (OK, OK, OK, OK, OK),
    ("GET", "model", "public"): (OK, OK, OK, OK, OK),
    ("GET", "model", "private"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "run", "public"): (OK, OK, OK, OK, OK),
    ("GET", "run", "private"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "run", "embargoed"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "run", "withdrawn"): (OK, OK, OK, OK, OK),
    ("GET", "run-live", "public"): (STOP, STOP, STOP, STOP, STOP),
    ("GET", "run-live", "private"): (HIDDEN, HIDDEN, STOP, STOP, STOP),
    ("GET", "run-steps", "public"): (OK, OK, OK, OK, OK),
    ("GET", "run-steps", "private"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "run-steps", "embargoed"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "run-steps", "withdrawn"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "submission", "public"): (OK, OK, OK, OK, OK),
    ("GET", "submission", "private"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "submission", "embargoed"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "submission", "withdrawn"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "submission-live", "public"): (OK, OK, OK, OK, OK),
    ("GET", "submission-live", "private"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "submission-source", "public"): (OK, OK, OK, OK, OK),
    ("GET", "submission-source", "source kept"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "submission-source", "private"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "submission-trace", "public"): (OK, OK, OK, OK, OK),
    ("GET", "submission-trace", "source kept"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "submission-trace", "private"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "submission-trace", "withdrawn"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "run-cancel", "public"): (LOGIN, HIDDEN, OK, OK, HIDDEN),
    ("POST", "run-cancel", "public"): (LOGIN, HIDDEN, DONE, DONE, HIDDEN),
    ("POST", "run-retry", "public"): (LOGIN, HIDDEN, DONE, DONE, DONE),
    ("POST", "run-retry", "private"): (LOGIN, HIDDEN, DONE, DONE, DONE),
    ("GET", "run-withdraw", "public"): (LOGIN, HIDDEN, OK, OK, HIDDEN),
    ("POST", "run-withdraw", "public"): (LOGIN, HIDDEN, DONE, DONE, HIDDEN),
    ("GET", "submit", "public"): (LOGIN, OK, OK, OK, OK),
    ("GET", "preview", "public"): (LOGIN, HIDDEN, HIDDEN, OK, HIDDEN),
    ("POST", "preview", "public"): (LOGIN, HIDDEN, HIDDEN, 422, HIDDEN),
    ("GET", "teams", "public"): (LOGIN, OK, OK, OK, OK),
    ("GET", "team-create", "public"): (LOGIN, OK, OK, OK, OK),
    ("GET", "team", "public"): (OK, OK, OK, OK, OK),
    ("GET", "team", "private"): (HIDDEN, HIDDEN, OK, OK, OK),
    ("GET", "model-create", "public"): (LOGIN, HIDDEN, OK, OK, HIDDEN),
    ("POST", "model-create", "public"): (LOGIN, HIDDEN, DONE, DONE, HIDDEN),
    ("POST", "team-invite", "public"): (LOGIN, HIDDEN, HIDDEN, DONE, HIDDEN),
    ("POST", "invitation-revoke", "public"): (LOGIN, HIDDEN, HIDDEN, DONE, HIDDEN),
    ("GET", "invitation", "public"): (LOGIN, OK, OK, OK, OK),
    ("GET", "healthz", "public"): (OK, OK, OK, OK, OK),
    ("GET", "admin:index", "public"): (GONE, GONE, GONE, GONE, OK),
}
ELSEWHERE = {
    "metrics": "asks who asks, not who is signed in; tested with the metrics",
    "readyz": "needs a broker; tested with the health checks",
}
FORMS = {
    "run-withdraw": {"reason": "sent by mistake"},
    "model-create": {"name": "Another model"},
    "team-invite": {"email": "new@example.org", "role": "member"},
}
STATES: dict[str, Callable[[], dict[str, object]]] = {
    "public": dict,
    "private": lambda: {"visibility": Visibility.PRIVATE},
    "embargoed": lambda: {"visibility": Visibility.EMBARGOED, "embargo_until": timezone.now() + timedelta(days=1)},
    "withdrawn": lambda: {"state": RunState.WITHDRAWN},
    "source kept": lambda: {"source_visibility": "private"},
}


@pytest.mark.parametrize(("method", "route", "state"), TABLE, ids=lambda value: value)
def test_each_person_gets_what_the_table_says(site: Site, method: str, route: str, state: str) -> None:
    Run.objects.filter(pk=site.run.pk).update(**STATES[state]())
    address, form = _address(site, route), _form(site, route)
    for who, wanted in zip(WHO, TABLE[method, route, state], strict=True):
        client = site.client(who)
        data = {**form, "name": f"{form['name']} of {who}"} if "name" in form else form
        response = client.get(address, form) if method == "GET" else client.post(address, data)
        got: int | str = response.status_code
        if response.status_code == 302:
            got = LOGIN if "/accounts/login/" in response["Location"] else GONE
        assert got == wanted, f"{who}: {method} {address}"
        if who == "owner" and route == "run-withdraw":
            assert Run.objects.get(pk=site.run.pk).state == (
                RunState.WITHDRAWN if method == "POST" else STATES[state]().get("state", RunState.ACTIVE)
            )


def test_an_embargo_ends_by_itself(site: Site) -> None:
    Run.objects.filter(pk=site.run.pk).update(
        visibility=Visibility.EMBARGOED, embargo_until=timezone.now() - timedelta(seconds=1)
    )
    assert site.client("anonymous").get(_address(site, "run")).status_code == OK


def test_absent_and_hidden_look_the_same(site: Site) -> None:
    Run.objects.filter(pk=site.run.pk).update(visibility=Visibility.PRIVATE)
    client = site.client("anonymous")
    pages = []
    for run_id in (site.run.public_id, "nothinghere1"):
        response = client.get(reverse("run", args=[run_id]))
        pages.append((response.status_code, response.content.decode().replace(run_id, "RUN")))
    assert pages[0] == pages[1]


def test_every_route_is_in_the_table() -> None:
    """A new page must say here who may see it."""
    named = {route for _, route, _ in TABLE} | set(ELSEWHERE)
    missing = {pattern.name for pattern in _own_patterns(get_resolver()) if pattern.name not in named}
    assert not missing, f"add rows for {sorted(str(name) for name in missing)}"


def test_every_changing_route_refuses_get(site: Site) -> None:
    """Links and prefetching change nothing."""
    client = site.client("owner")
    for method, route, _ in TABLE:
        if method == "POST" and ("GET", route, "public") not in TABLE:
            assert client.get(_address(site, route)).status_code == 405, route


def test_forms_without_token_are_refused(site: Site) -> None:
    from django.test import Client

    client = Client(enforce_csrf_checks=True)
    client.force_login(site.owner, backend="django.contrib.auth.backends.ModelBackend")
    response = client.post(_address(site, "run-withdraw"), FORMS["run-withdraw"])
    assert response.status_code == 403
    assert b"has expired" in response.content


def _own_patterns(resolver: URLResolver) -> list[URLPattern]:
    """Routes of our own; those of allauth and of the admin have their own tests."""
    found: list[URLPattern] = []
    for entry in resolver.url_patterns:
        if isinstance(entry, URLPattern):
            found.append(entry)
        elif entry.app_name != "admin" and str(entry.pattern) != "accounts/":
            found += _own_patterns(entry)
    return found


def _form(site: Site, route: str) -> dict[str, str]:
    if route == "submission-trace":
        with_trace(site.submission)
        return {"on": site.evaluation.public_id, "rank": "0"}
    return {"evaluation": site.evaluation.public_id} if route in ("run-cancel", "run-retry") else FORMS.get(route, {})


def _address(site: Site, route: str) -> str:
    arguments: dict[str, Callable[[], list[object]]] = {
        "problem": lambda: [site.submission.problem.number],
        "problem-prompt": lambda: [site.submission.problem.number],
        "problem-prompt-text": lambda: [site.submission.problem.number],
        "document": lambda: ["feedback"],
        "board-export": lambda: ["csv"],
        "model": lambda: [site.run.model.slug],
        "team": lambda: [site.team.slug],
        "model-create": lambda: [site.team.slug],
        "team-invite": lambda: [site.team.slug],
        "invitation": lambda: [_invitation(site)[1]],
        "invitation-revoke": lambda: [site.team.slug, _invitation(site)[0].pk],
        "preview": lambda: [Upload.objects.create(user=site.owner).pk],
    }
    if route == "compare":
        other = evaluated_run("tie", suite=site.suite).run
        return f"{reverse(route)}?run={site.run.public_id}&run={other.public_id}"
    if route == "run-steps":
        Run.objects.filter(pk=site.run.pk).update(track=Track.AGENTIC)
        scores.materialise(Evaluation.objects.get(pk=site.evaluation.pk))
        return reverse(route, args=[site.run.public_id, "csv"])
    if route.startswith("run"):
        return reverse(route, args=[site.run.public_id])
    if route.startswith("submission"):
        return reverse(route, args=[site.submission.public_id])
    return reverse(route, args=arguments[route]() if route in arguments else [])


def _invitation(site: Site) -> tuple[Invitation, str]:
    secrets: list[str] = []

    def address(secret: str) -> str:
        secrets.append(secret)
        return f"https://example.org/invitations/{secret}/"

    return membership.invite(site.owner, site.team, email="guest@example.org", role="member", address=address), secrets[
        0
    ]


def test_a_running_evaluation_keeps_its_page_live(site: Site) -> None:
    EvaluationFactory(run=site.run, suite=site.suite, state="running", target__name="other")
    assert site.client("anonymous").get(_address(site, "run-live")).status_code == OK
