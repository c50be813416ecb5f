"""Teams as their pages show them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet

from leaderboard.models import Invitation, Membership, RankedModel, Role, Run, Team

RUNS_SHOWN = 100


@dataclass(frozen=True)
class TeamPage:
    """``members`` and ``invitations`` are for members only and None for everybody else."""

    team: Team
    runs: list[Run]
    models: list[RankedModel]
    members: list[Membership] | None
    invitations: list[Invitation] | None
    owner: bool


def read(team: Team, user: Any) -> TeamPage:
    """A team with the runs that ``user`` may see, newest first."""
    memberships = list(team.memberships.select_related("user"))
    own = next((m for m in memberships if m.user_id == user.pk), None)
    runs = list(Run.objects.visible_to(user).filter(team=team).select_related("model")[:RUNS_SHOWN])
    seen = {run.model_id for run in runs}
    models = [m for m in team.ranked_models.all() if own or m.pk in seen]
    return TeamPage(
        team=team,
        runs=runs,
        models=models,
        members=memberships if own else None,
        invitations=list(Invitation.objects.open().filter(team=team)) if own else None,
        owner=bool(own and own.role == Role.OWNER),
    )


def own_runs(user: Any) -> QuerySet[Run]:
    """The newest runs of all teams of ``user``."""
    runs = Run.objects.filter(team__in=Team.objects.of(user)).select_related("model", "team")
    return runs.prefetch_related("evaluations__target", "evaluations__score")[:RUNS_SHOWN]
