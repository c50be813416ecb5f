"""Teams: own ones, one of them, founding, models, invitations."""

from __future__ import annotations

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from leaderboard import membership
from leaderboard.access import invitation_for_owner, team_for_member, team_for_owner, team_for_viewer
from leaderboard.forms import posted
from leaderboard.forms.teams import InvitationForm, ModelForm, TeamForm
from leaderboard.models import Team
from leaderboard.pages import teams as reading


@login_required
@require_safe
def own_teams(request: HttpRequest) -> HttpResponse:
    context = {"section": "teams", "teams": Team.objects.of(request.user), "runs": reading.own_runs(request.user)}
    return render(request, "leaderboard/teams.html", context)


@require_safe
def team_page(request: HttpRequest, slug: str) -> HttpResponse:
    page = reading.read(team_for_viewer(request.user, slug), request.user)
    context = {"section": "teams", "page": page, "invite": InvitationForm() if page.owner else None}
    return render(request, "leaderboard/team.html", context)


@login_required
@require_http_methods(["GET", "POST"])
def team_create(request: HttpRequest) -> HttpResponse:
    form = TeamForm(posted(request))
    if form.is_valid():
        team = membership.found_team(request.user, name=form.cleaned_data["name"], link=form.cleaned_data["link"])
        messages.success(request, f"The team {team} exists, and you own it.")
        return redirect(_next(request) or team_address(team))
    return render(request, "leaderboard/team_form.html", {"section": "teams", "form": form})


@login_required
@require_http_methods(["GET", "POST"])
def model_create(request: HttpRequest, slug: str) -> HttpResponse:
    team = team_for_member(request.user, slug)
    form = ModelForm(posted(request), team=team)
    if form.is_valid():
        model = membership.enter_model(request.user, team, **form.cleaned_data)
        messages.success(request, f"{model} can now be chosen when you submit.")
        return redirect(_next(request) or team_address(team))
    return render(request, "leaderboard/model_form.html", {"section": "teams", "form": form, "team": team})


@login_required
@require_POST
def team_invite(request: HttpRequest, slug: str) -> HttpResponse:
    team = team_for_owner(request.user, slug)
    form = InvitationForm(request.POST)
    if not form.is_valid():
        page = reading.read(team, request.user)
        return render(request, "leaderboard/team.html", {"section": "teams", "page": page, "invite": form}, status=422)
    try:
        membership.invite(
            request.user,
            team,
            email=form.cleaned_data["email"],
            role=form.cleaned_data["role"],
            address=lambda secret: request.build_absolute_uri(reverse("invitation", args=[secret])),
        )
        messages.success(request, f"A link was sent to {form.cleaned_data['email']}.")
    except membership.MembershipError as error:
        messages.error(request, str(error))
    return redirect(team_address(team))


@login_required
@require_POST
def invitation_revoke(request: HttpRequest, slug: str, invitation_id: int) -> HttpResponse:
    invitation = invitation_for_owner(request.user, slug, invitation_id)
    membership.revoke(request.user, invitation)
    messages.success(request, f"The link sent to {invitation.email} no longer works.")
    return redirect(team_address(invitation.team))


@login_required
@require_http_methods(["GET", "POST"])
def invitation_page(request: HttpRequest, secret: str) -> HttpResponse:
    """Shows who invites to what; joins on POST, since mail programs open links by themselves."""
    invitation = membership.open_invitation(secret)
    if invitation is None:
        raise Http404
    if request.method == "POST":
        try:
            team = membership.join(request.user, invitation)
        except membership.MembershipError as error:
            messages.error(request, str(error))
            return redirect("teams")
        messages.success(request, f"You belong to {team} now.")
        return redirect(team_address(team))
    return render(request, "leaderboard/invitation.html", {"invitation": invitation})


def team_address(team: Team) -> str:
    return reverse("team", args=[team.slug])


def _next(request: HttpRequest) -> str:
    """Where the visitor came from, if it is an address of this site."""
    target = request.POST.get("next", "")
    return target if url_has_allowed_host_and_scheme(target, {request.get_host()}, request.is_secure()) else ""
