"""One gloo group for each world size serves all tests of the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from problems.suite.ranks import Ranks


@pytest.fixture(scope="session")
def groups() -> Iterator[dict[int, Ranks]]:
    with Ranks(2) as two, Ranks(4) as four:
        yield {2: two, 4: four}
