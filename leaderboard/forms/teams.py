"""Forms of teams: found one, enter a model, invite."""

from __future__ import annotations

from typing import Any

from django import forms

from leaderboard.models import Invitation, RankedModel, Team


class TeamForm(forms.ModelForm):
    link = forms.URLField(label="Home page", required=False, max_length=200, assume_scheme="https")

    class Meta:
        model = Team
        fields = ("name", "link")
        help_texts = {"name": "As it stands on the leaderboard."}


class ModelForm(forms.ModelForm):
    """``team`` is given by the address; the name must be new within it."""

    link = forms.URLField(label="Link", required=False, max_length=200, assume_scheme="https")

    class Meta:
        model = RankedModel
        fields = ("name", "organisation", "released_on", "open_weights", "licence", "link", "alias")
        labels = {
            "released_on": "Released on",
            "open_weights": "The weights are published",
            "alias": "Alias until release",
        }
        help_texts = {
            "name": "The system that wrote the kernels: a language model, or an agent with the model it uses.",
            "organisation": "Who made the model.",
        }
        widgets = {"released_on": forms.DateInput(attrs={"type": "date"})}

    def __init__(self, *args: Any, team: Team, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.team = team

    def clean_name(self) -> str:
        name: str = self.cleaned_data["name"]
        if RankedModel.objects.filter(team=self.team, name__iexact=name).exists():
            raise forms.ValidationError(f"{self.team} already has a model of the name {name}.")
        return name


class InvitationForm(forms.ModelForm):
    class Meta:
        model = Invitation
        fields = ("email", "role")
        help_texts = {"role": "Owners change the team and invite; members submit and see everything of the team."}
