"""A small site: one public run with verdicts of several kinds, its team, and people at every distance from it."""

from __future__ import annotations

import pytest

from leaderboard.models import Role
from problems.models import Suite
from tests.factories import (
    MembershipFactory,
    ProblemFactory,
    ProblemVersionFactory,
    RankedModelFactory,
    SuiteFactory,
    TeamFactory,
    UserFactory,
    evaluated_run,
)
from tests.pages.site import Site


@pytest.fixture
def suite(db: None) -> Suite:
    """Four problems with the numbers 1 to 4."""
    suite = SuiteFactory(size=0, is_current=True)
    suite.problem_versions.set(ProblemVersionFactory(problem=ProblemFactory(number=n)) for n in range(1, 5))
    return suite


@pytest.fixture
def site(suite: Suite) -> Site:
    team = TeamFactory(name="Kernel Lab", slug="kernel-lab")
    owner, member = UserFactory(username="olga"), UserFactory(username="mara")
    MembershipFactory(team=team, user=owner, role=Role.OWNER)
    MembershipFactory(team=team, user=member, role=Role.MEMBER)
    return Site(
        suite=suite,
        team=team,
        owner=owner,
        member=member,
        stranger=UserFactory(username="stan"),
        maintainer=UserFactory(username="maud", is_staff=True, is_superuser=True),
        evaluation=evaluated_run(
            "faster",
            "tie",
            "deadlock",
            suite=suite,
            model=RankedModelFactory(name="Model One", slug="model-one", team=team),
            created_by=owner,
        ),
    )
