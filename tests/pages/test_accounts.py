"""Accounts, teams and invitations through the pages."""

from __future__ import annotations

import re

import pytest
from django.core import mail
from django.core.cache import cache
from django.test import Client
from django.urls import reverse

from leaderboard.models import Membership, Role, Team, User
from tests.factories import UserFactory
from tests.pages.site import Site

pytestmark = pytest.mark.django_db
PASSWORD = "correct horse battery staple"


@pytest.fixture(autouse=True)
def fresh_limits() -> None:
    """Rate limits are counted in the cache, which tests share."""
    cache.clear()


def sign_up(client: Client, name: str) -> str:
    form = {"email": f"{name}@example.org", "username": name, "password1": PASSWORD, "password2": PASSWORD}
    return client.post(reverse("account_signup"), form, follow=True).content.decode()


def link_in_mail() -> str:
    found = re.search(r"http://\S+", str(mail.outbox[-1].body))
    assert found, mail.outbox[-1].body
    return found[0]


def test_an_account_works_once_its_address_is_confirmed() -> None:
    client = Client()
    sign_up(client, "ada")
    login = {"login": "ada", "password": PASSWORD}
    client.post(reverse("account_login"), login)
    assert "_auth_user_id" not in client.session
    address = link_in_mail()
    page = client.get(address).content.decode()
    assert "Confirm" in page
    client.post(address)
    client.post(reverse("account_login"), login)
    assert "_auth_user_id" in client.session


def test_a_taken_address_is_not_told_to_strangers() -> None:
    UserFactory(username="old", email="ada@example.org")
    assert "already" not in sign_up(Client(), "ada").lower()
    assert "already" in str(mail.outbox[-1].body).lower(), "its owner is told by mail"


def test_a_lost_password_is_replaced_by_mail() -> None:
    client = Client()
    sign_up(client, "ada")
    client.post(link_in_mail())
    client.post(reverse("account_reset_password"), {"email": "ada@example.org"})
    page = client.get(link_in_mail(), follow=True)
    address = page.redirect_chain[-1][0]
    client.post(address, {"password1": PASSWORD + "2", "password2": PASSWORD + "2"})
    assert User.objects.get(username="ada").check_password(PASSWORD + "2")


def test_too_many_wrong_passwords_close_the_door() -> None:
    UserFactory(username="ada")
    client = Client()
    answers = [
        client.post(reverse("account_login"), {"login": "ada", "password": f"wrong {number}"}) for number in range(12)
    ]
    assert "Too many" in answers[-1].content.decode()
    client.post(reverse("account_login"), {"login": "ada", "password": "a long password 1"})
    assert "_auth_user_id" not in client.session, "the right password does not open it either, for a while"


def test_the_admin_has_the_same_door() -> None:
    form = {"username": "ada", "password": "wrong"}
    answers = [Client().post(reverse("admin:login"), form) for _ in range(11)]
    assert answers[0].status_code == 200
    assert answers[-1].status_code == 429
    assert "After 10 failed sign-ins" in answers[-1].content.decode()


def test_sign_up_is_limited_by_address() -> None:
    answers = [Client().post(reverse("account_signup"), {"username": f"bot{n}"}).status_code for n in range(30)]
    assert answers[0] == 200
    assert answers[-1] == 429


def test_an_invitation_makes_a_member_once(site: Site) -> None:
    owner, stranger = site.client("owner"), site.client("stranger")
    owner.post(reverse("team-invite", args=[site.team.slug]), {"email": "stan@elsewhere.org", "role": "member"})
    address = re.sub(r"^http://[^/]+", "", link_in_mail())
    assert "olga invites you" in stranger.get(address).content.decode()
    assert not Membership.objects.filter(user=site.stranger).exists(), "looking at it is not joining"
    stranger.post(address)
    assert Membership.objects.get(user=site.stranger).role == Role.MEMBER
    assert site.client("maintainer").post(address).status_code == 404


def test_a_withdrawn_invitation_is_dead(site: Site) -> None:
    owner = site.client("owner")
    owner.post(reverse("team-invite", args=[site.team.slug]), {"email": "stan@elsewhere.org", "role": "member"})
    address = re.sub(r"^http://[^/]+", "", link_in_mail())
    invitation = site.team.invitations.get()
    owner.post(reverse("invitation-revoke", args=[site.team.slug, invitation.pk]))
    assert site.client("stranger").post(address).status_code == 404


def test_who_belongs_already_is_not_invited(site: Site) -> None:
    response = site.client("owner").post(
        reverse("team-invite", args=[site.team.slug]),
        {"email": site.member.email.upper(), "role": "member"},
        follow=True,
    )
    assert "already belongs to Kernel Lab" in response.content.decode()
    assert not mail.outbox


def test_mail_that_cannot_be_sent_invites_nobody(site: Site, settings: object, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise ConnectionRefusedError("no mail server")

    monkeypatch.setattr("leaderboard.membership.send_mail", refuse)
    response = site.client("owner").post(
        reverse("team-invite", args=[site.team.slug]), {"email": "new@example.org", "role": "member"}, follow=True
    )
    assert "could not be sent, so nobody was invited" in response.content.decode()
    assert not site.team.invitations.exists()


def test_the_founder_owns_the_team(site: Site) -> None:
    site.client("stranger").post(reverse("team-create"), {"name": "Nové jádro", "link": "nj.example"})
    team = Team.objects.get(name="Nové jádro")
    assert (team.slug, team.link) == ("nove-jadro", "https://nj.example")
    assert team.memberships.get().role == Role.OWNER
    page = site.client("member").post(reverse("team-create"), {"name": "Nové jádro"}).content.decode()
    assert "Team with this Name already exists." in page


def test_an_alias_is_what_the_address_is_made_of(site: Site) -> None:
    site.client("member").post(
        reverse("model-create", args=[site.team.slug]), {"name": "Secret 9", "alias": "Anonymous 7"}
    )
    assert site.team.ranked_models.get(name="Secret 9").slug == "anonymous-7"
