"""The catalogue: list and page of a problem. Public, the same for everybody."""

from __future__ import annotations

import django_filters
from django.db.models import Prefetch
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from problems import details
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
        "filtered": any(request.GET.get(name) for name in ("type", "difficulty")),
    }
    return render(request, "problems/list.html", context)


@require_safe
def problem_page(request: HttpRequest, number: int) -> HttpResponse:
    """The newest version of a problem, or the one that ``?version=`` names."""
    versions = ProblemVersion.objects.order_by("-number").prefetch_related("suites")
    problem = get_object_or_404(Problem.objects.prefetch_related(Prefetch("versions", versions)), number=number)
    every = list(problem.versions.all())
    asked = request.GET.get("version", "")
    version = next((v for v in every if str(v.number) == asked), every[0] if every else None)
    context = {
        "section": "problems",
        "problem": problem,
        "version": version,
        "versions": every,
        "details": details.read(version.details) if version else None,
    }
    return render(request, "problems/problem.html", context)
