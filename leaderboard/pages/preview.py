"""An upload as the preview shows it: each file with its finding, and what is still missing."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import ROUND_CEILING
from typing import Any

from leaderboard.intake import RUN_USD, Status, missing_problems, step_costs
from leaderboard.models import Target, Track, Upload
from problems.models import Problem, Suite

SIGNS = {
    Status.ACCEPTED: ("✓", "good"),
    Status.USED: ("✓", "good"),
    Status.REFUSED: ("✗", "bad"),
    Status.IGNORED: ("–", "calm"),
}


@dataclass(frozen=True)
class Preview:
    upload: Upload
    findings: list[dict[str, Any]]
    missing: list[Problem]
    accepted: int
    refused: int
    ignored: int


def read(upload: Upload, suite: Suite) -> Preview:
    """Findings as intake wrote them, each with a sign and a tone."""
    counts = Counter(finding["status"] for finding in upload.findings)
    findings = [
        {**finding, "sign": SIGNS[finding["status"]][0], "tone": SIGNS[finding["status"]][1]}
        for finding in upload.findings
    ]
    return Preview(
        upload=upload,
        findings=findings,
        missing=missing_problems(upload, suite),
        accepted=counts[Status.ACCEPTED],
        refused=counts[Status.REFUSED],
        ignored=counts[Status.IGNORED],
    )


def first_guess(upload: Upload) -> dict[str, Any]:
    """What the declaration begins with: from names of folders and files, else what the first open target offers."""
    accepted = [finding for finding in upload.findings if finding["status"] == Status.ACCEPTED]
    backends = Counter(finding["backend"] for finding in accepted if finding["backend"])
    guess: dict[str, Any] = {"track": _track(accepted), **_cost(accepted)}
    if backends:
        guess["backend"] = backends.most_common(1)[0][0]
    guess |= {key: upload.guesses[key] for key in ("backend", "precision") if upload.guesses.get(key)}
    fitting = [t for t in Target.objects.open() if guess.get("precision") in (None, *t.precisions)]
    if fitting:
        target = next((t for t in fitting if t.workers.online().exists()), fitting[0])
        guess.setdefault("precision", target.precision)
        guess["targets"] = [target.name]
    return guess


def _track(accepted: list[dict[str, Any]]) -> str:
    if any(finding["step"] for finding in accepted) or step_costs(accepted) != (None, None):
        return Track.AGENTIC
    return Track.MULTI_SAMPLE if any(finding["sample"] for finding in accepted) else Track.SINGLE_SHOT


def _cost(accepted: list[dict[str, Any]]) -> dict[str, Any]:
    """The cost of the run, where that of each step was given; the team may still write a higher one."""
    usd, tokens = step_costs(accepted)
    guess = {"cost_usd": usd and usd.quantize(RUN_USD, ROUND_CEILING), "cost_tokens": tokens}
    return {key: value for key, value in guess.items() if all(f.get(key) is not None for f in accepted)}
