"""Counts as it goes what metrics tell, so that no scrape ever adds up all verdicts.

Counted once the transaction of the deed is there, each batch in one transaction of its own and in a fixed order: two
processes that count the same never wait for each other in a circle. What a killed process had not counted yet is
missing from the figures, and from nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from django.db import connection, transaction

from evaluator.contract import PhaseStatus, Report
from leaderboard.models import Attempt, AttemptState

Row = tuple[str, str, str, int, float]
"""Name, target, label, number, seconds."""

REPORTS, ENDS, PHASES, EVALUATIONS, WAITS, REFUSED = "reports", "ends", "phases", "evaluations", "waits", "refused"

_ADD = """
INSERT INTO leaderboard_tally (name, target, label, count, seconds) VALUES (%s, %s, %s, %s, %s)
ON CONFLICT (name, target, label) DO UPDATE
SET count = leaderboard_tally.count + excluded.count, seconds = leaderboard_tally.seconds + excluded.seconds
"""


def note_report(attempt: Attempt, report: Report) -> None:
    """A report was taken, whether it became a verdict or a failure of ours that is tried again."""
    target = attempt.evaluation.target.name
    ran = [phase for phase in report.phases if phase.status is not PhaseStatus.SKIPPED]
    _add_on_commit(
        [
            (REPORTS, target, report.code, 1, 0.0),
            (EVALUATIONS, target, "", 1, report.seconds),
            *((PHASES, target, phase.phase, 1, phase.seconds) for phase in ran),
        ]
    )


def note_start(attempt: Attempt, now: datetime) -> None:
    """A worker has begun the attempt: it waited so long."""
    waited = max(0.0, (now - attempt.created_at).total_seconds())
    _add_on_commit([(WAITS, attempt.evaluation.target.name, "", 1, waited)])


def note_ends(targets: Iterable[str], state: AttemptState) -> None:
    """Attempts ended in ``state``; ``targets`` names the target of each."""
    _add_on_commit([(ENDS, target, state, number, 0.0) for target, number in Counter(targets).items()])


def note_refusal(why: str) -> None:
    """A message was refused; ``why`` in one word."""
    _add_on_commit([(REFUSED, "", why, 1, 0.0)])


def _add_on_commit(rows: list[Row]) -> None:
    transaction.on_commit(lambda: _add(rows))


def _add(rows: list[Row]) -> None:
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.executemany(_ADD, sorted(rows))
