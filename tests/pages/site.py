"""What the tests of pages stand on: a small site with people at every distance from one run."""

from __future__ import annotations

from dataclasses import dataclass

from django.test import Client

from leaderboard.models import Evaluation, Run, Submission, Team, User
from problems.models import Suite


@dataclass
class Site:
    suite: Suite
    team: Team
    owner: User
    member: User
    stranger: User
    maintainer: User
    evaluation: Evaluation

    @property
    def run(self) -> Run:
        return self.evaluation.run

    @property
    def submission(self) -> Submission:
        submission = self.run.submissions.order_by("problem__number").first()
        assert submission is not None
        return submission

    def client(self, who: str) -> Client:
        """A browser of ``who``: anonymous, stranger, member, owner or maintainer."""
        client = Client()
        if who != "anonymous":
            client.force_login(getattr(self, who), backend="django.contrib.auth.backends.ModelBackend")
        return client
