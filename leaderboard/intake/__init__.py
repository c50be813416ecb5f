"""From what somebody sends to a run: read, find the problem of each file, preview, confirm. Nothing is executed.

``preview`` stores what was sent with one finding a file; ``confirm`` makes it a run. Every finding has a sentence.
"""

from leaderboard.intake.confirming import RUN_USD, Declaration, IntakeError, LimitReached, confirm, step_costs
from leaderboard.intake.findings import Finding, Status
from leaderboard.intake.previewing import missing_problems, preview
from leaderboard.intake.reading import Sent

__all__ = [
    "RUN_USD",
    "Declaration",
    "Finding",
    "IntakeError",
    "LimitReached",
    "Sent",
    "Status",
    "confirm",
    "missing_problems",
    "preview",
    "step_costs",
]
