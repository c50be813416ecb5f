"""Looks at everything that was sent and stores it as an upload with one finding a file. All or nothing is stored."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from django.conf import settings
from django.db import transaction

from evaluator import demonstration
from leaderboard import audit
from leaderboard.intake import costs, names, reading, sources
from leaderboard.intake.findings import Finding, Status, printable, refused
from leaderboard.intake.reading import Entry, Sent
from leaderboard.intake.sources import Text, Trouble
from leaderboard.models import SourceFile, Upload, User
from problems.models import Problem, Suite


def preview(user: User, files: Iterable[Sent], *, suite: Suite) -> Upload:
    """Store an upload in state ``previewed``: its findings, and the sources of the files that were accepted.

    ``files`` may be kernels, zips of them, or pasted text under a name such as ``13.py``, and ``costs.csv``.
    Whatever they hold, the result is an upload; only the database can make this fail, and then nothing is stored.
    """
    contents = reading.read(files)
    catalogue = names.Catalogue(list(Problem.objects.in_suite(suite)))
    bills = [entry for entry in contents.entries if costs.is_costs(entry.path)]
    looked_at, texts = _look([entry for entry in contents.entries if not costs.is_costs(entry.path)], catalogue)
    findings = [*costs.assign(bills, _refuse_rivals(looked_at), catalogue), *contents.findings]
    accepted = {f.sha256 for f in findings if f.status is Status.ACCEPTED}
    with transaction.atomic():
        upload = Upload.objects.create(
            user=user,
            findings=[finding.as_json() for finding in sorted(findings, key=_order)],
            guesses=dict(names.guesses(entry.path for entry in contents.entries)),
        )
        kept = [
            SourceFile(sha256=sha256, size=len(text.encode()), text=text)
            for sha256, text in texts.items()
            if sha256 in accepted
        ]
        # Held, so that the reaper does not remove one of them as belonging to nothing just now.
        list(SourceFile.objects.select_for_update(no_key=True).filter(pk__in=accepted).order_by("pk").values_list("pk"))
        SourceFile.objects.bulk_create(kept, ignore_conflicts=True)
        upload.sources.set(accepted)
        audit.write("preview upload", upload, actor=user, accepted=len(accepted), findings=len(findings))
    return upload


def missing_problems(upload: Upload, suite: Suite) -> list[Problem]:
    """Problems of the suite that no accepted file of the upload answers, in the order of their numbers."""
    answered = {f["problem"] for f in upload.findings if f["status"] == Status.ACCEPTED}
    return [problem for problem in Problem.objects.in_suite(suite) if problem.number not in answered]


def _look(entries: Sequence[Entry], catalogue: names.Catalogue) -> tuple[list[Finding], dict[str, str]]:
    """One finding for each entry, and the texts by sha256 of those that are text."""
    decoded = [sources.decode(entry.path, entry.data) for entry in entries]
    parsed = iter(sources.parse([item.text for item in decoded if isinstance(item, Text)]))
    findings, texts = [], {}
    for entry, item in zip(entries, decoded, strict=True):
        if isinstance(item, Trouble):
            findings.append(_finding(entry, item, "", catalogue))
            continue
        sha256 = hashlib.sha256(item.text.encode()).hexdigest()
        texts[sha256] = item.text
        finding = _finding(entry, next(parsed), sha256, catalogue)
        findings.append(replace(finding, warnings=(*item.warnings, *finding.warnings)))
    return findings, texts


def _finding(entry: Entry, trouble: Trouble | None, sha256: str, catalogue: names.Catalogue) -> Finding:
    name = names.parse(entry.path)
    match = catalogue.match(name)
    problem = match.problem
    fields = {
        "problem": problem.number if problem else None,
        "slug": problem.slug if problem else "",
        "title": problem.title if problem else "",
        "sample": name.sample,
        "step": name.step,
        "backend": name.backend,
        "file_name": printable(PurePosixPath(entry.path.replace("\\", "/")).name, 200),
        "size": len(entry.data),
        "warnings": match.warnings,
    }
    if trouble is not None:
        return refused(entry.path, trouble.code, trouble.sentence, line=trouble.line, column=trouble.column, **fields)
    if problem is None:
        return refused(entry.path, "unknown_problem", match.sentence, **fields)
    if settings.ONLY_DEMONSTRATION and sha256 not in demonstration.digests():
        return refused(entry.path, "no_sandbox", demonstration.REFUSAL, **fields)
    sentence = f"Answers problem {problem.number}, {problem.title}."
    return Finding(printable(entry.path), Status.ACCEPTED, "accepted", sentence, sha256=sha256, **fields)


def _refuse_rivals(findings: Sequence[Finding]) -> list[Finding]:
    """Where several files answer one problem in the same sample and step: a copy is ignored, rivals are refused."""
    groups: dict[tuple[int | None, int, int], list[Finding]] = defaultdict(list)
    for finding in findings:
        if finding.status is Status.ACCEPTED:
            groups[finding.problem, finding.sample, finding.step].append(finding)
    return [
        _against(finding, groups[finding.problem, finding.sample, finding.step])
        if finding.status is Status.ACCEPTED
        else finding
        for finding in findings
    ]


def _against(finding: Finding, group: Sequence[Finding]) -> Finding:
    if len({other.sha256 for other in group}) == 1:
        if finding is group[0]:
            return finding  # also the only one
        sentence = f"A copy of {group[0].path}; that one is taken."
        return replace(finding, status=Status.IGNORED, code="copy", sentence=sentence)
    others = ", ".join(other.path for other in group if other is not finding)
    sentence = (
        f"Two files answer problem {finding.problem}: this one and {others}. Keep one; for several samples or steps "
        "put sample_0, sample_1 … or step_0, step_1 … into the names."
    )
    return replace(finding, status=Status.REFUSED, code="two_files", sentence=printable(sentence, 600))


def _order(finding: Finding) -> tuple[bool, int, int, int, str]:
    """By problem; files without one last."""
    return finding.problem is None, finding.problem or 0, finding.sample, finding.step, finding.path
