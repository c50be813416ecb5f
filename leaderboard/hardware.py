"""Loads the targets from ``evaluator/targets.json``, the one place that says what each is."""

from __future__ import annotations

import json

from django.conf import settings
from django.db import transaction

from leaderboard.models import Target

# Named otherwise here, or of use to the judge and the prompts alone.
_NOT_FIELDS = {
    "name", "ranked", "world_sizes", "hardware", "measured", "movement", "process_group", "baselines", "timed",
}  # fmt: skip


@transaction.atomic
def load() -> int:
    """Bring the targets up to the file; whether one takes runs is left as maintainers set it. Returns their number.

    A target that the file no longer has stays, since verdicts refer to it, but takes no more runs.
    """
    entries = json.loads(settings.TARGETS_FILE.read_text(encoding="utf-8"))["targets"]
    for entry in entries:
        fields = {name: value for name, value in entry.items() if name not in _NOT_FIELDS}
        Target.objects.update_or_create(name=entry["name"], defaults={**fields, "is_ranked": entry["ranked"]})
    Target.objects.exclude(name__in=[entry["name"] for entry in entries]).update(is_open=False)
    return len(entries)
