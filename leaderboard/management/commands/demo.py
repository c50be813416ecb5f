"""``manage.py demo``: submit the demonstration runs; a second call submits nothing."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from leaderboard import demonstration
from leaderboard.intake import IntakeError
from problems.models import Suite


class Command(BaseCommand):
    help = "Submits the demonstration runs of three made-up models to cpu-gloo, unless they are there already."

    def handle(self, *args: Any, **options: Any) -> None:
        suite = Suite.objects.current()
        if suite is None:
            raise CommandError("No suite is loaded. Run 'manage.py load_suite' first.")
        try:
            runs = demonstration.submit(settings.BASE_DIR / "demo", suite=suite)
        except (IntakeError, FileNotFoundError) as error:
            raise CommandError(f"The demonstration could not be submitted: {error}") from error
        if not runs:
            self.stdout.write("The demonstration runs are there already.")
        for run in runs:
            self.stdout.write(f"Submitted {run.model} with {run.submissions.count()} files: /runs/{run.public_id}/")
