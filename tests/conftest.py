"""Rules for all tests. Fixtures stand in the conftest.py of the folder that needs them."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

# With PKB_TEST_STRICT set (.ci/run), a test of these kinds that cannot run here counts as failed: nobody reads skips.
NEVER_SKIPPED = {"browser", "sandbox", "postgres"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    kinds = NEVER_SKIPPED & {mark.name for mark in item.iter_markers()}
    if os.environ.get("PKB_TEST_STRICT") and report.skipped and kinds and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"a test marked {', '.join(sorted(kinds))} must run under PKB_TEST_STRICT. {reason}"
    return report
