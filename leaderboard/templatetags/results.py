"""Results on the pages of the catalogue. The catalogue itself knows nothing of runs, so its templates ask here."""

from __future__ import annotations

from typing import Any

from django import template
from django.http import HttpRequest

from leaderboard.pages import problem as reading
from problems.models import Problem, Suite

register = template.Library()


@register.inclusion_tag("leaderboard/_problem_results.html")
def problem_results(problem: Problem, request: HttpRequest) -> dict[str, Any]:
    """The best answers to ``problem`` on the target ``?target=``, with their charts."""
    asked = request.GET.get("target", "")
    targets, target, results = reading.read(problem, asked)
    return {"problem": problem, "targets": targets, "target": target, "asked": asked, "results": results}


@register.simple_tag
def solved_counts(suite: Suite | None) -> dict[str, Any]:
    """``runs``: the leading runs that were looked at; ``target`` where; ``counts``: problem number -> numbers."""
    target, runs, counts = reading.solved_counts(suite) if suite else (None, 0, {})
    return {"target": target, "runs": runs, "counts": counts}


@register.filter
def solved(counts: dict[int, tuple[int, int]], number: int) -> tuple[int, int]:
    """(correct, faster) of the problem ``number``."""
    return counts.get(number, (0, 0))
