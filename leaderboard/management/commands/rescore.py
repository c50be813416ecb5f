"""``manage.py rescore``: recompute every score from the verdicts; with ``--check`` only compare.

``--outdated`` looks at those of another version of the scoring rules alone, which is what an update needs.
"""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db.models import Exists, OuterRef

from leaderboard import scores
from leaderboard.models import Evaluation, EvaluationScore, Verdict
from leaderboard.scoring import SCORING_VERSION


class Command(BaseCommand):
    help = "Recomputes the scores of all evaluations from their verdicts."

    def add_arguments(self, parser: ArgumentParser) -> None:
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument("--check", action="store_true", help="change nothing; fail if a stored score differs")
        chosen.add_argument("--outdated", action="store_true", help="only scores of another version of the rules")

    def handle(self, *, check: bool, outdated: bool, **options: Any) -> None:
        judged = Verdict.objects.filter(evaluation=OuterRef("pk"))
        evaluations = Evaluation.objects.filter(Exists(judged)).select_related("run", "suite")
        if outdated:
            current = EvaluationScore.objects.filter(scoring_version=SCORING_VERSION)
            evaluations = evaluations.exclude(pk__in=current.values("evaluation"))
        different, total = 0, evaluations.count()
        for evaluation in evaluations.iterator():
            differences = scores.differences(evaluation)
            different += bool(differences)
            for difference in [] if outdated else differences:
                self.stdout.write(f"{evaluation.public_id}: {difference}")
            if differences and not check:
                scores.materialise(evaluation)
        if check and different:
            raise CommandError(
                f"{different} of {total} evaluations have stored scores that differ from their verdicts."
            )
        self.stdout.write(f"{total} evaluations checked, {different} recomputed.")
