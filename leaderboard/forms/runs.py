"""What a team says about its run after it was sent."""

from __future__ import annotations

from django import forms


class WithdrawForm(forms.Form):
    reason = forms.CharField(
        max_length=500,
        widget=forms.TextInput,
        help_text="One sentence; it stands on the run's page for everybody who may see it.",
    )
