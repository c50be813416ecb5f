"""One gloo group for each world size serves all tests of the suite."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from problems.suite.ranks import Ranks


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    """Draws and oracles are many small operations: a second thread would only spin, and cost others their CPUs."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def groups() -> Iterator[dict[int, Ranks]]:
    with Ranks(2) as two, Ranks(4) as four:
        yield {2: two, 4: four}
