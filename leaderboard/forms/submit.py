"""The two steps of the submit page: files, then what the team declares about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from typing import Any

from django import forms
from django.core.files.uploadedfile import UploadedFile
from django.db.models import Exists, OuterRef
from django.utils import timezone

from leaderboard.intake import Declaration, Sent
from leaderboard.models import (
    BACKENDS,
    PRECISIONS,
    Provenance,
    RankedModel,
    SourceVisibility,
    Target,
    Track,
    User,
    Visibility,
    Worker,
)

LICENCES = (
    ("Apache-2.0", "Apache-2.0"),
    ("MIT", "MIT"),
    ("BSD-3-Clause", "BSD-3-Clause"),
    ("CC0-1.0", "CC0-1.0"),
    ("CC-BY-4.0", "CC-BY-4.0"),
    ("LicenseRef-Proprietary", "Proprietary, kept by the team"),
)


class ManyFilesInput(forms.ClearableFileInput):
    allow_multiple_selected = True


class ManyFilesField(forms.FileField):
    """Cleans to a list of uploaded files. Empty ones are let through: intake has a sentence for them."""

    def __init__(self, *, folder: bool = False, **kwargs: Any) -> None:
        attrs = {"webkitdirectory": True} if folder else {"accept": ".py,.zip,.csv"}
        super().__init__(widget=ManyFilesInput(attrs=attrs), required=False, allow_empty_file=True, **kwargs)

    def clean(self, data: Any, initial: Any = None) -> list[UploadedFile]:  # type: ignore[override]
        files = [super(ManyFilesField, self).clean(item, initial) for item in data or []]
        return [file for file in files if file]


class UploadForm(forms.Form):
    """Files, a folder or a zip, or pasted text. ``end`` is the form's last field: it shows that all before it came."""

    files = ManyFilesField(
        label="Files or zips", help_text="Named NUMBER_NAME_BACKEND.py, such as 13_gemm_allreduce_cuda.py."
    )
    folder = ManyFilesField(folder=True, label="or a whole folder")
    pasted_name = forms.CharField(
        label="Name of the pasted file",
        max_length=200,
        required=False,
        help_text="Such as 13.py: the number of the problem.",
    )
    pasted = forms.CharField(
        label="Python source",
        widget=forms.Textarea(attrs={"rows": 10, "spellcheck": "false"}),
        required=False,
        strip=False,
    )
    paths = forms.CharField(required=False, widget=forms.HiddenInput)
    end = forms.CharField(required=False, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        if not data.get("end"):
            raise forms.ValidationError("The upload was cut off on its way, so nothing was stored. Send it again.")
        if data.get("pasted", "").strip() and not data.get("pasted_name"):
            self.add_error(
                "pasted_name", "Give the pasted file a name that says which problem it answers, such as 13.py."
            )
        if not (data.get("files") or data.get("folder") or data.get("pasted", "").strip()):
            raise forms.ValidationError(
                "Nothing was sent: choose files, a folder or a zip, or paste the text of a file."
            )
        return data

    def sent(self) -> list[Sent]:
        """Everything that came, each with the path that it had at home where the browser told it."""
        data = self.cleaned_data
        files: list[UploadedFile] = data["files"]
        sent = [Sent(path, file) for path, file in zip(self._paths(files), files, strict=True)]
        sent += [Sent(file.name or "", file) for file in data["folder"]]
        if data["pasted"].strip():
            text = data["pasted"].replace("\r\n", "\n")
            sent.append(Sent(data["pasted_name"], BytesIO(text.encode())))
        return sent

    def _paths(self, files: Sequence[UploadedFile]) -> list[str]:
        """Paths from the script, which keeps folders; if they do not fit the files, the bare names."""
        bare = [file.name or "" for file in files]
        try:
            paths = json.loads(self.cleaned_data["paths"] or "null")
        except ValueError:
            return bare
        fits = isinstance(paths, list) and len(paths) == len(bare) and all(isinstance(path, str) for path in paths)
        return paths if fits else bare


class ModelOfTeam(forms.ModelChoiceField):
    def label_from_instance(self, obj: RankedModel) -> str:  # type: ignore[override]
        return f"{obj.name} ({obj.team})"


class TargetsField(forms.ModelMultipleChoiceField):
    def label_from_instance(self, obj: Target) -> str:  # type: ignore[override]
        present = "" if obj.has_worker else "; no worker at the moment, files wait for one"  # type: ignore[attr-defined]
        return f"{obj.title} ({', '.join(obj.precisions)}{present})"


class DeclarationForm(forms.Form):
    """What the team says of the files of an upload; prefilled from the names of folders and files."""

    model = ModelOfTeam(queryset=RankedModel.objects.none(), empty_label="Choose …")
    track = forms.ChoiceField(choices=Track.choices)
    backend = forms.ChoiceField(choices=BACKENDS)
    precision = forms.ChoiceField(choices=PRECISIONS)
    targets = TargetsField(
        queryset=Target.objects.none(), widget=forms.CheckboxSelectMultiple, to_field_name="name", label="Targets"
    )
    provenance = forms.ChoiceField(
        choices=[c for c in Provenance.choices if c[0] != Provenance.MAINTAINERS], label="Provenance"
    )
    provenance_note = forms.CharField(
        label="Note on it", required=False, max_length=2_000, help_text="Prompt, samples taken, agent, links to logs."
    )
    cost_usd = forms.DecimalField(
        label="Cost in US dollars", required=False, min_value=0, max_digits=12, decimal_places=4
    )
    cost_tokens = forms.IntegerField(label="Tokens", required=False, min_value=0, max_value=10**15)
    visibility = forms.ChoiceField(choices=Visibility.choices, label="Results are")
    embargo_until = forms.DateTimeField(
        label="Public from",
        required=False,
        widget=forms.DateTimeInput(attrs={"type": "datetime-local"}),
        help_text="UTC.",
    )
    source_visibility = forms.ChoiceField(choices=SourceVisibility.choices, label="The files are shown")
    record_profile = forms.BooleanField(
        label="Record a profile",
        required=False,
        help_text="Correct files get a trace of each rank to download, and a paragraph that reads it. Takes a few more "
        "seconds a file.",
    )
    licence = forms.ChoiceField(choices=LICENCES, label="Licence of the files")
    terms = forms.BooleanField(
        label="We may have these files run and judged, and show the results as chosen above. We own them or may pass "
        "them on under the licence above.",
        error_messages={"required": "Without this consent the files cannot be judged."},
    )

    def __init__(self, *args: Any, user: User, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["model"].queryset = RankedModel.objects.filter(  # type: ignore[attr-defined]
            team__memberships__user=user, is_baseline=False
        ).select_related("team")
        self.fields["targets"].queryset = Target.objects.open().annotate(  # type: ignore[attr-defined]
            has_worker=Exists(Worker.objects.online().filter(target=OuterRef("pk")))
        )
        models = self.fields["model"].queryset[:2]  # type: ignore[attr-defined]
        if len(models) == 1:
            self.initial.setdefault("model", models[0].pk)

    def clean(self) -> dict[str, Any]:
        data: dict[str, Any] = super().clean() or {}
        until, embargoed = data.get("embargo_until"), data.get("visibility") == Visibility.EMBARGOED
        if embargoed and until is None:
            self.add_error("embargo_until", "Say from when the results are public.")
        if embargoed and until is not None and until <= timezone.now():
            self.add_error("embargo_until", "This moment has passed; choose a later one, or make the results public.")
        return data

    def declaration(self) -> Declaration:
        data = self.cleaned_data
        return Declaration(
            team=data["model"].team,
            model=data["model"],
            track=data["track"],
            backend=data["backend"],
            precision=data["precision"],
            targets=list(data["targets"]),
            licence=data["licence"],
            provenance=data["provenance"],
            provenance_note=data["provenance_note"],
            cost_usd=data["cost_usd"],
            cost_tokens=data["cost_tokens"],
            visibility=data["visibility"],
            embargo_until=data["embargo_until"] if data["visibility"] == Visibility.EMBARGOED else None,
            source_visibility=data["source_visibility"],
            record_profile=data["record_profile"],
        )
