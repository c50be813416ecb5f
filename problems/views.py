"""The catalogue: list, page and prompts of a problem. Public, the same for everybody."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import django_filters
from django.conf import settings
from django.db.models import Prefetch
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from problems import bounds, catalogue, details, hardware, prompts
from problems.forms import PromptForm
from problems.models import Problem, ProblemVersion, Suite, Type


class ProblemFilter(django_filters.FilterSet):
    type = django_filters.ChoiceFilter(choices=Type.choices, empty_label="All", label="Type of parallelism")
    difficulty = django_filters.ChoiceFilter(
        choices=[(str(level), f"{level}/5") for level in range(1, 6)], empty_label="All", label="Difficulty"
    )

    class Meta:
        model = Problem
        fields = ("type", "difficulty")


@require_safe
def problem_list(request: HttpRequest) -> HttpResponse:
    suite = Suite.objects.current()
    problems = Problem.objects.in_suite(suite) if suite else Problem.objects.none()
    chosen = ProblemFilter(request.GET, queryset=problems)
    context = {
        "section": "problems",
        "suite": suite,
        "filter": chosen,
        "problems": chosen.qs,
        "backends": prompts.BACKENDS.items(),
        "filtered": any(request.GET.get(name) for name in ("type", "difficulty")),
    }
    return render(request, "problems/list.html", context)


@require_safe
def problem_page(request: HttpRequest, number: int) -> HttpResponse:
    """The newest version of a problem, or the one that ``?version=`` names."""
    problem, every, version = _chosen(request, number)
    targets = hardware.load(settings.TARGETS_FILE)
    context = {
        "section": "problems",
        "problem": problem,
        "version": version,
        "versions": every,
        "details": details.read(version.details) if version else None,
        "bounds": bounds.bounds(version.details, targets.values()) if version else [],
        "prompt_form": PromptForm(request.GET),
    }
    return render(request, "problems/problem.html", context)


@require_safe
def prompt_page(request: HttpRequest, number: int) -> HttpResponse:
    """The prompt for a choice of backend, precision and hardware, in full."""
    problem, _, version = _chosen(request, number)
    if version is None:
        raise Http404
    form = PromptForm(request.GET)
    refused, text = "", ""
    if form.is_valid():
        entry = catalogue.entry(version)
        refused = prompts.refusal(entry, *form.choice)
        text = "" if refused else prompts.build(entry, *form.choice)
    context = {
        "section": "problems",
        "problem": problem,
        "version": version,
        "form": form,
        "refused": refused,
        "prompt": text,
        "size": len(text.encode()),
        "query": urlencode({**form.cleaned_data, "version": version.number}),
    }
    return render(request, "problems/prompt.html", context)


@require_safe
def prompt_text(request: HttpRequest, number: int) -> HttpResponse:
    """The same prompt as a file; a choice that does not fit is answered by 400 and the reason."""
    _, _, version = _chosen(request, number)
    if version is None:
        raise Http404
    form = PromptForm(request.GET)
    if not form.is_valid():
        return _plain("\n".join(form.sentences) + "\n", status=400)
    try:
        text = prompts.build(catalogue.entry(version), *form.choice)
    except prompts.Refusal as refusal:
        return _plain(f"{refusal}\n", status=400)
    backend, precision, target = form.choice
    name = f"{number}_{version.problem.slug}_{backend}_{precision}_{target.name}.md"
    return _plain(text, headers={"Content-Disposition": f'inline; filename="{name}"'})


@require_safe
def suite_prompts(request: HttpRequest) -> HttpResponse:
    """The prompts of the whole current suite as JSONL; problems that the choice does not fit are left out."""
    form = PromptForm(request.GET)
    if not form.is_valid():
        return _plain("\n".join(form.sentences) + "\n", status=400)
    suite = Suite.objects.current()
    if suite is None:
        raise Http404
    versions = suite.problem_versions.select_related("problem").order_by("problem__number")
    entries = [catalogue.entry(version) for version in versions]
    lines = [prompts.as_json_line(e, *form.choice) for e in entries if not prompts.refusal(e, *form.choice)]
    backend, precision, target = form.choice
    name = f"prompts_{suite.version}_{backend}_{precision}_{target.name}.jsonl"
    response = HttpResponse("".join(lines), content_type="application/jsonl; charset=utf-8")
    response["Content-Disposition"] = f'attachment; filename="{name}"'
    return response


def _plain(text: str, **options: Any) -> HttpResponse:
    return HttpResponse(text, content_type="text/plain; charset=utf-8", **options)


def _chosen(request: HttpRequest, number: int) -> tuple[Problem, list[ProblemVersion], ProblemVersion | None]:
    """The problem, its versions, and the one that ``?version=`` names, else the newest; None without any."""
    versions = ProblemVersion.objects.order_by("-number").prefetch_related("suites")
    problem = get_object_or_404(Problem.objects.prefetch_related(Prefetch("versions", versions)), number=number)
    every = list(problem.versions.all())
    asked = request.GET.get("version", "")
    version = next((v for v in every if str(v.number) == asked), every[0] if every else None)
    return problem, every, version
