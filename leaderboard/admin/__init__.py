"""The maintainers' rooms. States change only through the verbs of ``lifecycle`` and its like, never in a form."""

from leaderboard.admin import judging, moderation, people, runs

__all__ = ["judging", "moderation", "people", "runs"]
