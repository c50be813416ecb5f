"""The choice of a prompt: backend, precision, hardware."""

from __future__ import annotations

from collections.abc import Mapping

from django import forms
from django.conf import settings

from problems import hardware, prompts
from problems.hardware import Hardware

DEFAULTS = {"backend": "cuda", "precision": "bf16", "hardware": "h100x8"}


class PromptForm(forms.Form):
    """Read from the address; what is not given there has its default."""

    backend = forms.ChoiceField(choices=list(prompts.BACKENDS.items()))
    precision = forms.ChoiceField(choices=[(name, name) for name in prompts.PRECISIONS])
    hardware = forms.ChoiceField()

    def __init__(self, query: Mapping[str, str]) -> None:
        super().__init__({**DEFAULTS, **{name: query[name] for name in DEFAULTS if query.get(name)}})
        self.targets = hardware.load(settings.TARGETS_FILE)
        self.fields["hardware"].choices = [(target.name, target.title) for target in self.targets.values()]

    @property
    def choice(self) -> tuple[str, str, Hardware]:
        """Backend, precision and target of a valid form, as ``prompts.build`` takes them."""
        chosen = self.cleaned_data
        return chosen["backend"], chosen["precision"], self.targets[chosen["hardware"]]

    @property
    def sentences(self) -> list[str]:
        """What is wrong, as sentences that name the field."""
        return [f"{name}: {message}" for name, messages in self.errors.items() for message in messages]
