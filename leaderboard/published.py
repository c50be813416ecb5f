"""Loads what others reported about the benchmark, from ``data/published_results.json``. Facts with their sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.db import transaction
from django.utils.text import slugify

from leaderboard.models import PublishedResult, PublishedResultKind
from problems.models import Problem

FILE = Path(__file__).parent / "data" / "published_results.json"


@transaction.atomic
def load() -> int:
    """Bring the table up to the file; rows that the file no longer has go. Returns the number of rows."""
    data = json.loads(FILE.read_text(encoding="utf-8"))
    rows = [*_models(data), *_headlines(data), *_kernels(data)]
    PublishedResult.objects.exclude(key__in=[row["key"] for row in rows]).delete()
    for order, row in enumerate(rows):
        PublishedResult.objects.update_or_create(key=row["key"], defaults={**row, "order": order})
    return len(rows)


def _models(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "key": slugify(f"{entry['model']} {entry['track']}".replace(".", "-")),
            "kind": PublishedResultKind.MODEL,
            "model": entry["model"],
            "organisation": entry["organisation"],
            "track": entry["track"],
            "steps": entry.get("steps"),
            "harness": entry.get("harness", ""),
            "problems": data["suite_size"],
            "correct": entry.get("correct"),
            "faster": entry.get("faster_than_baseline"),
            "fast_1": entry.get("fast_1_rate"),
            "setup": data["setup"],
            "source": entry["source"],
        }
        for entry in data["models"]
    ]


def _headlines(data: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "key": f"headline-{number}",
            "kind": PublishedResultKind.HEADLINE,
            "statement": entry["statement"],
            "value": entry["value"],
            "relation": entry.get("relation", ""),
            "source": entry["source"],
        }
        for number, entry in enumerate(data["headline"], start=1)
    ]


def _kernels(data: dict[str, Any]) -> list[dict[str, Any]]:
    numbers = {problem.slug: problem for problem in Problem.objects.all()}
    return [
        {
            "key": slugify(f"kernel {entry['problem_slug']}"),
            "kind": PublishedResultKind.KERNEL,
            "statement": entry["name"],
            "model": entry["by"],
            "problem": numbers.get(entry["problem_slug"]),
            "problem_slug": entry["problem_slug"],
            "speedup": entry["speedup_up_to"],
            "relation": "up to",
            "source": entry["source"],
        }
        for entry in data["kernels"]
    ]
