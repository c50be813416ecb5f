"""Pages that explain: methodology, about the suite, citing, published figures."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from evaluator.contract import PROTOCOL_VERSION, Code
from leaderboard.models import PublishedResult, PublishedResultKind, Target
from leaderboard.pages import docs
from leaderboard.pages.outcome import CODE_MEANINGS
from leaderboard.scoring import RANKING_RULE, SCORING_VERSION
from problems.models import Problem, Suite, Type


@require_safe
def methodology(request: HttpRequest) -> HttpResponse:
    context = {
        "section": "methodology",
        "protocol": PROTOCOL_VERSION,
        "scoring": SCORING_VERSION,
        "rule": RANKING_RULE,
        "codes": [(code.value, CODE_MEANINGS[code]) for code in Code],
        "targets": Target.objects.all(),
    }
    return render(request, "documents/methodology.html", context)


@require_safe
def about(request: HttpRequest) -> HttpResponse:
    suite = Suite.objects.current()
    problems = Problem.objects.in_suite(suite) if suite else Problem.objects.none()
    by_type = [
        (
            value,
            label,
            sum(problem.type == value for problem in problems),
            sum(value in problem.also for problem in problems),
        )
        for value, label in Type.choices
    ]
    return render(request, "documents/about.html", {"suite": suite, "count": len(problems), "by_type": by_type})


@require_safe
def cite(request: HttpRequest) -> HttpResponse:
    return render(request, "documents/cite.html", {"suite": Suite.objects.current(), "protocol": PROTOCOL_VERSION})


@require_safe
def published(request: HttpRequest) -> HttpResponse:
    figures = list(PublishedResult.objects.select_related("problem"))
    context = {
        "published": [f for f in figures if f.kind == PublishedResultKind.MODEL],
        "headlines": [f for f in figures if f.kind == PublishedResultKind.HEADLINE],
        "kernels": [f for f in figures if f.kind == PublishedResultKind.KERNEL],
        "setup": next((f.setup for f in figures if f.setup), {}),
    }
    return render(request, "documents/published.html", context)


@require_safe
def document_list(request: HttpRequest) -> HttpResponse:
    return render(request, "documents/documents.html", {"documents": docs.documents()})


@require_safe
def document(request: HttpRequest, name: str) -> HttpResponse:
    found = docs.read(name)
    if found is None:
        raise Http404
    return render(request, "documents/document.html", {"document": found})
