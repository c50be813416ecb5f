"""Who may see and do what: one function for each kind of object and level. Nothing is open that is not opened here.

Every function answers Http404 alike for what does not exist and for what is not the user's, so that an address tells
nothing. Views call exactly one of them and get the object with what they need already joined.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from django.db.models import Exists, OuterRef, Q
from django.http import Http404
from django.shortcuts import get_object_or_404

from leaderboard.models import (
    Evaluation,
    Invitation,
    Membership,
    RankedModel,
    Role,
    Run,
    RunState,
    SourceVisibility,
    Submission,
    Team,
    Upload,
)

User = Any
"""``User`` or ``AnonymousUser``."""


def is_member(user: User, team: Team) -> bool:
    """Whether ``user`` belongs to ``team``. Staff do not, unless they joined."""
    return bool(user.is_authenticated) and Membership.objects.filter(user=user, team=team).exists()


def is_inside(user: User, team: Team) -> bool:
    """Whether ``user`` sees what is the team's own: its members and staff."""
    return bool(user.is_staff) or is_member(user, team)


def run_for_viewer(user: User, public_id: str) -> Run:
    """A run whose result ``user`` may see. A withdrawn one stays as a tombstone: its page says no more than that."""
    runs = Run.objects.visible_to(user).select_related("model", "team", "created_by")
    return get_object_or_404(runs, public_id=public_id)


def run_for_member(user: User, public_id: str) -> Run:
    """A run of a team of ``user``, who may withdraw it or cancel its evaluations."""
    runs = Run.objects.filter(team__in=Team.objects.of(user)).select_related("model", "team")
    return get_object_or_404(runs, public_id=public_id)


def run_for_retry(user: User, public_id: str) -> Run:
    """A run of which ``user`` may have tried again what we failed to judge: one of an own team, any for staff."""
    runs = Run.objects.select_related("model", "team")
    if not user.is_staff:
        runs = runs.filter(team__in=Team.objects.of(user))
    return get_object_or_404(runs, public_id=public_id)


def evaluation_of(run: Run, public_id: str) -> Evaluation:
    """An evaluation of a run that the user already has by one of the functions here."""
    for evaluation in run.evaluations.all():
        if evaluation.public_id == public_id:
            return evaluation
    raise Http404


def submission_for_viewer(user: User, public_id: str) -> Submission:
    """A submission whose verdict ``user`` may see. Those of a withdrawn run are left to its team and to staff."""
    submission = get_object_or_404(
        Submission.objects.select_related("run__model", "run__team", "problem", "source"), public_id=public_id
    )
    visible = Run.objects.visible_to(user).filter(pk=submission.run_id).exists()
    if not visible or (submission.run.state == RunState.WITHDRAWN and not is_inside(user, submission.run.team)):
        raise Http404
    return submission


def may_see_source(user: User, submission: Submission) -> bool:
    """Whether the file itself may be shown: to the team and staff, to everybody where the run says so."""
    return submission.run.source_visibility == SourceVisibility.PUBLIC or is_inside(user, submission.run.team)


def source_for_viewer(user: User, public_id: str) -> Submission:
    """A submission whose file ``user`` may read."""
    submission = submission_for_viewer(user, public_id)
    if not may_see_source(user, submission):
        raise Http404
    return submission


def upload_for_owner(user: User, upload_id: UUID) -> Upload:
    """An upload that ``user`` made. Nobody else sees a preview, not even the team: it belongs to none yet."""
    if not user.is_authenticated:
        raise Http404
    return get_object_or_404(Upload.objects.filter(user=user), pk=upload_id)


def model_for_viewer(user: User, slug: str) -> RankedModel:
    """A model with at least one run that ``user`` may see, or of a team of ``user``."""
    seen = Run.objects.visible_to(user).filter(model=OuterRef("pk"))
    models = RankedModel.objects.filter(Q(Exists(seen)) | Q(team__in=Team.objects.of(user))).select_related("team")
    return get_object_or_404(models, slug=slug)


def team_for_viewer(user: User, slug: str) -> Team:
    """A team with a run that ``user`` may see, or that ``user`` belongs to; staff see all."""
    if user.is_staff:
        return get_object_or_404(Team, slug=slug)
    seen = Run.objects.visible_to(user).filter(team=OuterRef("pk"))
    own = Team.objects.of(user).values("pk")
    return get_object_or_404(Team.objects.filter(Q(Exists(seen)) | Q(pk__in=own)), slug=slug)


def team_for_member(user: User, slug: str) -> Team:
    """A team that ``user`` belongs to and may submit for."""
    return get_object_or_404(Team.objects.of(user), slug=slug)


def team_for_owner(user: User, slug: str) -> Team:
    """A team that ``user`` may change: invite, withdraw invitations."""
    if not user.is_authenticated:
        raise Http404
    return get_object_or_404(Team.objects.filter(memberships__user=user, memberships__role=Role.OWNER), slug=slug)


def invitation_for_owner(user: User, slug: str, invitation_id: int) -> Invitation:
    """An open invitation to a team that ``user`` may change."""
    return get_object_or_404(Invitation.objects.open(), team=team_for_owner(user, slug), pk=invitation_id)
