"""``manage.py load_suite``: bring problems, targets and published figures up to the files of the release."""

from __future__ import annotations

import json
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError

from leaderboard import hardware, published, workers
from problems import catalogue


class Command(BaseCommand):
    help = "Loads problems, targets and published figures from the files of this release. Run it after every update."

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            manifest = json.loads(settings.SUITE_MANIFEST.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise CommandError(
                f"The manifest of the suite cannot be read ({error}). On a host with torch, make it with: "
                "python -m problems.suite manifest --write"
            ) from error
        loaded = catalogue.load(manifest)
        workers.suite_changed()
        problems = loaded.suite.problem_versions.count()
        self.stdout.write(
            f"Suite {loaded.suite.version}: {problems} problems, {loaded.new_versions} of them new or changed."
        )
        self.stdout.write(f"Targets: {hardware.load()}. Published figures: {published.load()}.")
