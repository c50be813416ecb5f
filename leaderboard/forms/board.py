"""The filters of the leaderboard; the whole selection stands in the address."""

from __future__ import annotations

from django import forms
from django.core.exceptions import ValidationError

from leaderboard.models import BACKENDS, PRECISIONS, Provenance, Target, Track
from leaderboard.pages.selection import Selection
from problems.models import Suite, Type

COLUMN_GROUPS = [("more", "More figures"), ("compatible", "PKB-compatible")]


class VersionField(forms.ModelChoiceField):
    """Suites by their version alone: all have one name."""

    def label_from_instance(self, obj: Suite) -> str:
        return obj.version


def _any(choices: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [("", "All"), *choices]


def _choice(choices: list[tuple[str, str]], label: str) -> forms.ChoiceField:
    return forms.ChoiceField(choices=_any(choices), required=False, label=label)


def _day(label: str) -> forms.DateField:
    return forms.DateField(required=False, label=label, widget=forms.DateInput(attrs={"type": "date"}))


class BoardFilter(forms.Form):
    """``target`` and ``suite`` always hold one value: rows of different hardware or suites have no common ranking."""

    target = forms.ModelChoiceField(
        Target.objects.all(), to_field_name="name", empty_label=None, required=False, label="Target"
    )
    suite = VersionField(Suite.objects.all(), to_field_name="version", empty_label=None, required=False, label="Suite")
    track = _choice(Track.choices, "Track")
    backend = _choice(BACKENDS, "Backend")
    precision = _choice(PRECISIONS, "Precision")
    provenance = _choice(Provenance.choices, "Provenance")
    weights = _choice([("open", "Open"), ("closed", "Closed")], "Weights")
    type = _choice(Type.choices, "Type")
    difficulty = _choice([(str(level), str(level)) for level in range(1, 6)], "Difficulty")
    since = _day("From")
    until = _day("To")
    also = forms.BooleanField(required=False, label="Count further types")
    columns = forms.MultipleChoiceField(
        choices=COLUMN_GROUPS, required=False, label="Columns", widget=forms.CheckboxSelectMultiple
    )
    charts = forms.BooleanField(required=False, label="Charts", widget=forms.HiddenInput)
    sort = forms.CharField(required=False, max_length=40, widget=forms.HiddenInput)
    page = forms.IntegerField(required=False, min_value=1, max_value=1_000_000, widget=forms.HiddenInput)

    def clean(self) -> None:
        since, until = self.cleaned_data.get("since"), self.cleaned_data.get("until")
        if since and until and since > until:
            raise ValidationError(f"No day lies between {since} and {until}: the first must not be after the last.")

    @property
    def selection(self) -> Selection:
        """What was chosen. A field that is refused keeps its sentence beside it and filters nothing."""
        self.full_clean()
        kept = {name: value for name, value in self.cleaned_data.items() if value}
        if "columns" in kept:
            kept["columns"] = tuple(kept["columns"])
        return Selection(**kept)
