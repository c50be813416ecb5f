"""The filters of the leaderboard; the whole selection stands in the address."""

from __future__ import annotations

import django_filters

from leaderboard.models import BACKENDS, PRECISIONS, EvaluationScore, Provenance, Target, Track
from problems.models import Suite, Type


class VersionField(django_filters.fields.ModelChoiceField):
    """Suites by their version alone: all have one name."""

    def label_from_instance(self, obj: Suite) -> str:
        return obj.version


class SuiteFilter(django_filters.ModelChoiceFilter):
    field_class = VersionField


class BoardFilter(django_filters.FilterSet):
    """``target`` and ``suite`` always hold one value: rows of different hardware or suites have no common ranking."""

    target = django_filters.ModelChoiceFilter(
        field_name="evaluation__target",
        to_field_name="name",
        queryset=Target.objects.all(),
        empty_label=None,
        label="Target",
    )
    suite = SuiteFilter(
        field_name="evaluation__suite",
        to_field_name="version",
        queryset=Suite.objects.all(),
        empty_label=None,
        label="Suite",
    )
    track = django_filters.ChoiceFilter(
        field_name="evaluation__run__track", choices=Track.choices, empty_label="All", label="Track"
    )
    backend = django_filters.ChoiceFilter(
        field_name="evaluation__run__backend", choices=BACKENDS, empty_label="All", label="Backend"
    )
    precision = django_filters.ChoiceFilter(
        field_name="evaluation__run__precision", choices=PRECISIONS, empty_label="All", label="Precision"
    )
    provenance = django_filters.ChoiceFilter(
        field_name="evaluation__run__provenance", choices=Provenance.choices, empty_label="All", label="Provenance"
    )
    weights = django_filters.ChoiceFilter(
        field_name="evaluation__run__model__open_weights",
        choices=[("true", "Open"), ("false", "Closed")],
        empty_label="All",
        label="Weights",
        method="by_weights",
    )
    type = django_filters.ChoiceFilter(
        choices=Type.choices, empty_label="All", label="Type of parallelism", method="keep"
    )

    class Meta:
        model = EvaluationScore
        fields: tuple[str, ...] = ()

    def by_weights(self, queryset, name: str, value: str):  # type: ignore[no-untyped-def]
        return queryset.filter(**{name: value == "true"})

    def keep(self, queryset, name: str, value: str):  # type: ignore[no-untyped-def]
        """A type picks which figures are shown and ranked, not which rows."""
        return queryset

    @property
    def chosen_type(self) -> str:
        return self.form.cleaned_data.get("type", "") if self.form.is_bound and not self.form.errors.get("type") else ""
