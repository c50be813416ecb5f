"""Brings the database up to the suite's manifest. What verdicts were given on is never changed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import transaction

from problems.models import Problem, ProblemVersion, Suite

# Parts of a problem's entry that have a column of their own; the rest is kept as ``details``.
_PROBLEM_FIELDS = ("slug", "title", "type", "also", "aliases", "domain", "stage", "origin", "difficulty")
_VERSION_FIELDS = ("statement", "signature", "reference", "communication")


@dataclass(frozen=True)
class Loaded:
    """What ``load`` did: the suite that is current now, and how many of its problems came as new versions."""

    suite: Suite
    new_versions: int
    new_suite: bool


@transaction.atomic
def load(manifest: Mapping[str, Any]) -> Loaded:
    """Make ``manifest`` (of ``problems/suite/manifest.json``) the current suite; a second time nothing happens.

    A problem whose digest is new gets a new version. A suite on which there are evaluations already keeps its
    versions: the changed set becomes a revision of its own, "1.0+2" after "1.0".
    """
    versions, new_versions = [], 0
    for entry in manifest["problems"]:
        version, is_new = _load_problem(entry)
        versions.append(version)
        new_versions += is_new
    suite, new_suite = _suite(str(manifest["suite"]), versions)
    if not suite.is_current:
        Suite.objects.filter(is_current=True).update(is_current=False)
        suite.is_current = True
        suite.save(update_fields=["is_current"])
    return Loaded(suite, new_versions, new_suite)


def entry(version: ProblemVersion) -> dict[str, Any]:
    """The version as an entry of the manifest that it was loaded from: what ``load`` took apart, put together again."""
    return {
        **version.details,
        **{name: getattr(version.problem, name) for name in _PROBLEM_FIELDS},
        **{name: getattr(version, name) for name in _VERSION_FIELDS},
        "id": version.problem.number,
        "digest": version.digest,
    }


def _load_problem(entry: Mapping[str, Any]) -> tuple[ProblemVersion, bool]:
    fields = {name: entry[name] for name in _PROBLEM_FIELDS}
    problem, created = Problem.objects.get_or_create(number=entry["id"], defaults=fields)
    if not created and any(getattr(problem, name) != value for name, value in fields.items()):
        for name, value in fields.items():
            setattr(problem, name, value)
        problem.save()
    known = {"id", "digest", *_PROBLEM_FIELDS, *_VERSION_FIELDS}
    content = {name: entry[name] for name in _VERSION_FIELDS}
    content["details"] = {name: value for name, value in entry.items() if name not in known}
    newest = problem.versions.first()
    return ProblemVersion.objects.update_or_create(
        digest=entry["digest"],
        defaults=content,
        create_defaults={**content, "problem": problem, "number": newest.number + 1 if newest else 1},
    )


def _suite(version: str, versions: list[ProblemVersion]) -> tuple[Suite, bool]:
    """The suite that holds exactly these versions: an existing one, one that nobody was judged by yet, or a new one."""
    wanted = {version.pk for version in versions}
    revisions = sorted(Suite.objects.filter(version__regex=rf"^{re.escape(version)}(\+\d+)?$"), key=_revision)
    for suite in revisions:
        if set(suite.problem_versions.values_list("pk", flat=True)) == wanted:
            return suite, False
    newest = revisions[-1] if revisions else None
    if newest is not None and not newest.evaluations.exists():
        newest.problem_versions.set(versions)
        return newest, False
    name = version if newest is None else f"{version}+{_revision(newest) + 1}"
    suite = Suite.objects.create(version=name)
    suite.problem_versions.set(versions)
    return suite, True


def _revision(suite: Suite) -> int:
    """1 for "1.0", 2 for "1.0+2"."""
    return int(suite.version.partition("+")[2] or 1)
