"""``manage.py rescore``: recompute every score from the verdicts; with ``--check`` only compare."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from leaderboard import scores
from leaderboard.models import Evaluation


class Command(BaseCommand):
    help = "Recomputes the scores of all evaluations from their verdicts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--check", action="store_true", help="change nothing; fail if a stored score differs")

    def handle(self, *, check: bool, **options: Any) -> None:
        evaluations = Evaluation.objects.filter(verdicts__isnull=False).distinct().select_related("run", "suite")
        different = 0
        for evaluation in evaluations.iterator():
            differences = scores.differences(evaluation)
            different += bool(differences)
            for difference in differences:
                self.stdout.write(f"{evaluation.public_id}: {difference}")
            if differences and not check:
                scores.materialise(evaluation)
        total = evaluations.count()
        if check and different:
            raise CommandError(
                f"{different} of {total} evaluations have stored scores that differ from their verdicts."
            )
        self.stdout.write(f"{total} evaluations checked, {different} recomputed.")
