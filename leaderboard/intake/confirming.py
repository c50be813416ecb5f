"""Makes an upload a run: once, however often the button is pressed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from django.db import transaction
from django.utils import timezone

from evaluator.contract import PROTOCOL_VERSION
from leaderboard import audit, lifecycle, quotas
from leaderboard.intake.findings import Status
from leaderboard.models import (
    Evaluation,
    Membership,
    Provenance,
    RankedModel,
    Run,
    SourceVisibility,
    Submission,
    Target,
    Team,
    Track,
    Upload,
    UploadState,
    User,
    Visibility,
)
from problems.models import Problem, Suite

RUN_USD = Decimal("0.0001")  # the smallest part of a dollar that the cost of a run keeps


class IntakeError(Exception):
    """The upload cannot become a run as declared. ``code`` for programs; the text is the sentence for people."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class LimitReached(IntakeError):
    """The team or the model has used up what it may use. ``retry_at``: when it would be taken; None: never as it is."""

    def __init__(self, refusal: quotas.Refusal) -> None:
        super().__init__(refusal.code, refusal.sentence)
        self.retry_at = refusal.retry_at


@dataclass(frozen=True)
class Declaration:
    """What the team says of its files. ``targets``: at least one, each able to judge ``precision``."""

    team: Team
    model: RankedModel
    track: str
    backend: str
    precision: str
    targets: Sequence[Target]
    licence: str
    provenance: str = Provenance.SELF_REPORTED
    provenance_note: str = ""
    cost_usd: Decimal | None = None
    cost_tokens: int | None = None
    visibility: str = Visibility.PUBLIC
    embargo_until: datetime | None = None
    source_visibility: str = SourceVisibility.PUBLIC
    record_profile: bool = False
    terms_accepted_at: datetime = field(default_factory=timezone.now)


@transaction.atomic
def confirm(upload: Upload, declaration: Declaration, *, user: User, suite: Suite) -> Run:
    """The run that the upload becomes, with its submissions, evaluations and queued attempts.

    A second call returns the run of the first and makes nothing. Raises ``IntakeError`` if the declaration does not
    fit the user, the targets or the files, and ``LimitReached`` if the team may not use so much now; then nothing is
    stored and the upload stays as it was.
    """
    now = timezone.now()
    claimed = Upload.objects.filter(pk=upload.pk, state=UploadState.PREVIEWED).update(
        state=UploadState.CONFIRMED, confirmed_at=now
    )
    if not claimed:
        return _run_of(upload)
    accepted = [f for f in upload.findings if f["status"] == Status.ACCEPTED]
    _check(upload, declaration, accepted, user)
    _check_limits(declaration, len(accepted), now)
    run = _make_run(upload, declaration, user, now)
    problems = {p.number: p for p in Problem.objects.filter(number__in={f["problem"] for f in accepted})}
    submissions = Submission.objects.bulk_create(
        Submission(
            run=run,
            problem=problems[finding["problem"]],
            source_id=finding["sha256"],
            file_name=finding["file_name"],
            sample=finding["sample"],
            step=finding["step"],
            cost_usd=finding.get("cost_usd"),
            cost_tokens=finding.get("cost_tokens"),
        )
        for finding in accepted
    )
    for target in sorted(declaration.targets, key=lambda target: target.pk):  # one order of locks for everybody
        evaluation = Evaluation.objects.create(
            run=run, target=target, suite=suite, protocol_version=PROTOCOL_VERSION, created_at=now
        )
        lifecycle.queue_attempts(evaluation, [submission.pk for submission in submissions])
    audit.write("confirm upload", run, actor=user, upload=str(upload.pk), files=len(submissions))
    return run


def _check(upload: Upload, declaration: Declaration, accepted: Sequence[dict[str, object]], user: User) -> None:
    if upload.user_id != user.pk:
        raise IntakeError("not_yours", "This upload is not yours.")
    if not Membership.objects.filter(team=declaration.team, user=user).exists():
        raise IntakeError("not_member", f"You are not a member of the team {declaration.team}.")
    if declaration.model.team_id != declaration.team.pk:
        raise IntakeError("model_of_other_team", f"The model {declaration.model} belongs to another team.")
    if not accepted:
        raise IntakeError(
            "nothing_accepted", "No file of this upload was accepted; see the findings and send it again."
        )
    if not declaration.targets:
        raise IntakeError("no_target", "Choose at least one target.")
    for target in declaration.targets:
        if not target.is_open:
            raise IntakeError("target_closed", f"The target {target} takes no runs at the moment.")
        if declaration.precision not in target.precisions:
            offered = ", ".join(target.precisions)
            sentence = f"The target {target} does not evaluate {declaration.precision}; it offers {offered}."
            raise IntakeError("precision_not_offered", sentence)
    _check_track(declaration.track, accepted)
    if declaration.track == Track.AGENTIC:
        _check_costs(declaration, accepted)


def _check_limits(declaration: Declaration, files: int, now: datetime) -> None:
    refusal = quotas.check_seconds(declaration.team, declaration.targets, files, at=now)
    refusal = refusal or quotas.check_single_shot(declaration.model, declaration.track, at=now)
    if refusal is not None:
        raise LimitReached(refusal)


def _run_of(upload: Upload) -> Run:
    run = Run.objects.filter(upload=upload).first()
    if run is None:
        raise IntakeError("upload_gone", "This upload was not confirmed in time and is gone. Send the files again.")
    return run


def _check_track(track: str, accepted: Sequence[dict[str, object]]) -> None:
    if track != Track.MULTI_SAMPLE and any(finding["sample"] for finding in accepted):
        raise IntakeError("samples_in_other_track", "Files with samples belong to the track multi-sample.")
    if track != Track.AGENTIC and any(finding["step"] for finding in accepted):
        raise IntakeError("steps_in_other_track", "Files with steps belong to the track agentic.")
    if track != Track.AGENTIC and step_costs(accepted) != (None, None):
        raise IntakeError(
            "costs_in_other_track",
            "Costs of steps belong to the track agentic. In other tracks give the cost of the run, without costs.csv.",
        )


def step_costs(accepted: Sequence[Mapping[str, Any]]) -> tuple[Decimal | None, int | None]:
    """What the steps of the accepted findings cost together, in US dollars and tokens; None where nothing was given."""
    usd = [Decimal(f["cost_usd"]) for f in accepted if f.get("cost_usd") is not None]
    tokens = [int(f["cost_tokens"]) for f in accepted if f.get("cost_tokens") is not None]
    return sum(usd, Decimal(0)) if usd else None, sum(tokens) if tokens else None


def _check_costs(declaration: Declaration, accepted: Sequence[dict[str, object]]) -> None:
    """A run costs at least what its steps cost. Dollars are compared as exactly as a run keeps them."""
    usd, tokens = step_costs(accepted)
    given_usd, given_tokens = declaration.cost_usd, declaration.cost_tokens
    if usd is not None and given_usd is not None and given_usd < usd.quantize(RUN_USD, ROUND_FLOOR):
        sentence = f"The cost of the run, ${given_usd:,f}, is below that of its steps in costs.csv, ${usd:,f} together."
        raise IntakeError("cost_below_steps", sentence)
    if tokens is not None and given_tokens is not None and given_tokens < tokens:
        sentence = (
            f"The tokens of the run, {given_tokens:,}, are fewer than those of its steps in costs.csv, {tokens:,}."
        )
        raise IntakeError("cost_below_steps", sentence)


def _make_run(upload: Upload, declaration: Declaration, user: User, now: datetime) -> Run:
    return Run.objects.create(
        upload=upload,
        team=declaration.team,
        model=declaration.model,
        created_by=user,
        created_at=now,
        track=declaration.track,
        backend=declaration.backend,
        precision=declaration.precision,
        provenance=declaration.provenance,
        provenance_note=declaration.provenance_note,
        cost_usd=declaration.cost_usd,
        cost_tokens=declaration.cost_tokens,
        visibility=declaration.visibility,
        embargo_until=declaration.embargo_until,
        source_visibility=declaration.source_visibility,
        record_profile=declaration.record_profile,
        licence=declaration.licence,
        terms_accepted_at=declaration.terms_accepted_at,
    )
