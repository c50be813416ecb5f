"""Teams and who belongs to them: found a team, enter a model, invite by e-mail, join."""

from __future__ import annotations

import hashlib
import secrets
from datetime import date, datetime, timedelta
from typing import Any

import structlog
from django.conf import settings
from django.core.mail import send_mail
from django.db import transaction
from django.utils import timezone
from django.utils.text import slugify

from leaderboard import audit
from leaderboard.models import Invitation, Membership, RankedModel, Role, Team, User

log = structlog.get_logger(__name__)

INVITATION_DAYS = 14
MAX_OPEN_INVITATIONS = 50  # of one team: an open form that sends mail must not become a relay


class MembershipError(Exception):
    """What was asked cannot be done; the text says why and what to do."""


@transaction.atomic
def found_team(user: User, *, name: str, link: str = "") -> Team:
    """A new team with ``user`` as its owner."""
    team = Team.objects.create(name=name, slug=_free_slug(Team, name, 60), link=link)
    Membership.objects.create(team=team, user=user, role=Role.OWNER)
    audit.write("found team", team, actor=user)
    return team


@transaction.atomic
def enter_model(
    user: User,
    team: Team,
    *,
    name: str,
    organisation: str = "",
    released_on: date | None = None,
    open_weights: bool = False,
    licence: str = "",
    link: str = "",
    alias: str = "",
) -> RankedModel:
    """A model of ``team``. Its address is made of the alias where there is one, so that it does not tell the name."""
    model = RankedModel.objects.create(
        team=team,
        slug=_free_slug(RankedModel, alias or name, 80),
        name=name,
        organisation=organisation,
        released_on=released_on,
        open_weights=open_weights,
        licence=licence,
        link=link,
        alias=alias,
    )
    audit.write("enter model", model, actor=user)
    return model


@transaction.atomic
def invite(user: User, team: Team, *, email: str, role: str, address: Any, at: datetime | None = None) -> Invitation:
    """Send a link that makes its holder a member. ``address``: secret -> absolute address of the link.

    An open invitation to the same address is replaced, so that only the newest link works. Raises
    ``MembershipError`` if the person already belongs to the team, too many invitations are open, or the mail fails.
    """
    now = at or timezone.now()
    if Membership.objects.filter(team=team, user__email__iexact=email).exists():
        raise MembershipError(f"{email} already belongs to {team}.")
    Invitation.objects.filter(team=team, email__iexact=email, accepted_at__isnull=True).delete()
    if Invitation.objects.open(at=now).filter(team=team).count() >= MAX_OPEN_INVITATIONS:
        raise MembershipError(
            f"{MAX_OPEN_INVITATIONS} invitations of this team are open, which is the limit. Withdraw some first."
        )
    secret = secrets.token_urlsafe(24)
    invitation = Invitation.objects.create(
        team=team,
        email=email,
        role=role,
        digest=_digest(secret),
        invited_by=user,
        expires_at=now + timedelta(days=INVITATION_DAYS),
    )
    audit.write("invite member", team, actor=user, email=email, role=role)
    text = (
        f"{user.get_username()} invites you to the team {team.name} on ParallelKernelBench.\n\n"
        f"To join, open this link within {INVITATION_DAYS} days and sign in:\n{address(secret)}\n"
    )
    try:
        send_mail(f"Invitation to the team {team.name}", text, settings.DEFAULT_FROM_EMAIL, [email])
    except OSError as error:  # what smtplib and sockets raise; the transaction is rolled back with it
        log.warning("invitation not sent", team=team.slug, error=str(error))
        raise MembershipError("The e-mail could not be sent, so nobody was invited. Try again later.") from error
    return invitation


@transaction.atomic
def revoke(user: User, invitation: Invitation) -> None:
    """The link no longer works."""
    audit.write("revoke invitation", invitation.team, actor=user, email=invitation.email)
    invitation.delete()


def open_invitation(secret: str, *, at: datetime | None = None) -> Invitation | None:
    """The open invitation whose link holds ``secret``."""
    return Invitation.objects.open(at=at).select_related("team", "invited_by").filter(digest=_digest(secret)).first()


@transaction.atomic
def join(user: User, invitation: Invitation, *, at: datetime | None = None) -> Team:
    """Make ``user`` a member and close the invitation. Raises ``MembershipError`` if somebody was faster."""
    closed = Invitation.objects.open(at=at).filter(pk=invitation.pk).update(accepted_at=at or timezone.now())
    if not closed:
        raise MembershipError("The invitation was used or has expired. Ask for a new one.")
    Membership.objects.get_or_create(team=invitation.team, user=user, defaults={"role": invitation.role})
    audit.write("join team", invitation.team, actor=user)
    return invitation.team


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _free_slug(model: type[Team] | type[RankedModel], name: str, length: int) -> str:
    """A slug made of ``name``; a name without Latin letters, or one that is taken, gets a random ending."""
    slug = slugify(name)[: length - 7].strip("-")
    if slug and slug != "new" and not model._default_manager.filter(slug=slug).exists():
        return slug
    return f"{slug or 'x'}-{secrets.token_hex(3)}"
