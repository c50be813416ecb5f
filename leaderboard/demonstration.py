"""Submits the demonstration runs: real files of made-up models, through the same door as everybody's."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from django.db import transaction
from django.utils import timezone

from evaluator.contract import Backend, Precision
from leaderboard import intake, membership
from leaderboard.models import Provenance, RankedModel, Run, Target, Team, Track, User
from problems.models import Suite

USER_NAME = "demonstration"
TEAM_NAME = "Demonstration"
LICENCE = "Apache-2.0"
TARGET = "cpu-gloo"


@dataclass(frozen=True)
class Model:
    """A made-up model: its name on the board and the folder of its files, relative to the folder ``demo``."""

    name: str
    folder: str
    open_weights: bool


MODELS = (
    Model("Demo Careful", "solutions_pytorch_fp32_cpu_demo_careful", open_weights=True),
    Model("Demo Hasty", "solutions_pytorch_fp32_cpu_demo_hasty", open_weights=False),
    Model("Demo Novice", "solutions_pytorch_fp32_cpu_demo_novice", open_weights=True),
)


@transaction.atomic
def submit(folder: Path, *, suite: Suite) -> list[Run]:
    """Submit the runs of all models that have none yet; returns the new ones.

    Raises ``intake.IntakeError`` if the files do not make a run, ``FileNotFoundError`` if they are missing.
    """
    user, team = _submitter()
    return [
        _run(user, _model(user, team, model), folder / model.folder, suite)
        for model in MODELS
        if not Run.objects.filter(team=team, model__name=model.name).exists()
    ]


def _submitter() -> tuple[User, Team]:
    """The user and the team of the demonstration. Nobody can sign in as that user: it has no password."""
    user = User.objects.filter(username=USER_NAME).first()
    if user is None:
        user = User.objects.create_user(USER_NAME, f"{USER_NAME}@localhost")
    team = Team.objects.of(user).filter(name=TEAM_NAME).first()
    return user, team or membership.found_team(user, name=TEAM_NAME)


def _model(user: User, team: Team, model: Model) -> RankedModel:
    found = RankedModel.objects.filter(team=team, name=model.name).first()
    return found or membership.enter_model(
        user, team, name=model.name, organisation="Made up", open_weights=model.open_weights
    )


def _run(user: User, model: RankedModel, folder: Path, suite: Suite) -> Run:
    paths = sorted(folder.glob("*.py"))
    if not paths:
        raise FileNotFoundError(f"There are no demonstration files in {folder}.")
    with ExitStack() as stack:
        sent = [intake.Sent(f"{folder.name}/{path.name}", stack.enter_context(path.open("rb"))) for path in paths]
        upload = intake.preview(user, sent, suite=suite)
    declaration = intake.Declaration(
        team=model.team,
        model=model,
        track=Track.SINGLE_SHOT,
        backend=Backend.PYTORCH,
        precision=Precision.FP32,
        targets=[Target.objects.get(name=TARGET)],
        licence=LICENCE,
        provenance=Provenance.SELF_REPORTED,
        provenance_note="Written by hand to show the site; no model has made these files.",
        terms_accepted_at=timezone.now(),
    )
    return intake.confirm(upload, declaration, user=user, suite=suite)
