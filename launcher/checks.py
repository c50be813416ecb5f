"""``./test``: format, lint, types, import arrows, migrations, then the tests on SQLite and on PostgreSQL.

Every step runs even if an earlier one failed, so that one run shows everything; the exit status is 1 if any failed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from launcher import chromium, environment
from launcher.console import Refusal, say
from pkbsite import environment as settings

ROOT = environment.ROOT
OF_PROCESSES = ("tests/pipeline", "tests/evaluator/test_verdicts.py")
"""Tests that mostly wait for processes that they start."""
DESCRIPTION = """\
Runs every check of the project. Whatever is not an option below goes to pytest, and then only pytest runs:
./test tests/evaluator -k deadlock"""


@dataclass
class Counts:
    """Sums over the pytest runs."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def add(self, junit: Path) -> None:
        """Add what pytest wrote down. A test that failed in its setup (an 'error') counts as failed."""
        for suite in ElementTree.parse(junit).getroot().iter("testsuite"):  # noqa: S314 - written by our own pytest
            failed = int(suite.get("failures", 0)) + int(suite.get("errors", 0))
            skipped = int(suite.get("skipped", 0))
            self.failed += failed
            self.skipped += skipped
            self.passed += int(suite.get("tests", 0)) - failed - skipped

    def __str__(self) -> str:
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"


@dataclass(frozen=True)
class Tests:
    """A run of pytest: its headline, what it is told, and the words before it."""

    title: str
    arguments: Sequence[str]
    before: Sequence[str] = ()


@dataclass
class Checks:
    """Runs steps one after another and keeps what came of them."""

    interpreter: Path
    env: Mapping[str, str]
    counts: Counts = field(default_factory=Counts)
    failed: list[str] = field(default_factory=list)

    def step(self, title: str, *arguments: str, output: IO[str] | None = None) -> int:
        """Run a program of the environment under a headline; its exit status. ``output``: a file for what is said."""
        print(f"\n=== {title}", file=output, flush=True)
        started = time.monotonic()
        command = [str(self.interpreter), *arguments]
        status = subprocess.run(
            command, cwd=ROOT, env=self.env, check=False, stdout=output, stderr=output and subprocess.STDOUT
        ).returncode
        outcome = "passed" if status == 0 else f"FAILED (exit status {status})"
        print(f"--- {title}: {outcome} in {time.monotonic() - started:.0f} s", file=output, flush=True)
        if status != 0:
            self.failed.append(title)
        return status

    def tests(self, tests: Tests, output: IO[str] | None = None) -> None:
        """Run pytest as a step and count its tests."""
        with tempfile.TemporaryDirectory() as folder:
            junit = Path(folder) / "tests.xml"
            self.step(
                tests.title, *tests.before, "-m", "pytest", f"--junit-xml={junit}", *tests.arguments, output=output
            )
            if junit.exists():
                self.counts.add(junit)

    def side_by_side(self, first: Tests, *others: Tests) -> None:
        """Run ``first`` and, beside it, the others one after another; what these say is shown when they are done.

        Most tests wait for processes, so that two at a time take little more than the longer of them.
        """
        with tempfile.TemporaryFile("w+") as output:
            beside = threading.Thread(target=self._in_turn, args=(others, output))
            beside.start()
            self.tests(first)
            beside.join()
            output.seek(0)
            say(output.read())

    def _in_turn(self, several: Sequence[Tests], output: IO[str]) -> None:
        for tests in several:
            self.tests(tests, output)


def static(checks: Checks) -> None:
    checks.step("Format (ruff format)", "-m", "ruff", "format", "--check", ".")
    checks.step("Lint (ruff)", "-m", "ruff", "check", ".")
    checks.step("Types (mypy)", "-m", "mypy")
    checks.step("Import arrows (import-linter)", "-c", "from importlinter.cli import lint_imports_command as c; c()")
    checks.step("Migrations are complete", "manage.py", "makemigrations", "--check", "--dry-run")


def marks(quick: bool, postgres: bool) -> str:
    """The mark expression: which of the slow kinds of test run."""
    left_out = ["nightly"]
    if quick:
        left_out += ["sandbox", "browser"]
    if postgres:
        return " and ".join(["(django_db or postgres)", *(f"not {mark}" for mark in [*left_out, "browser", "sandbox"])])
    return " and ".join(f"not {mark}" for mark in [*left_out, "postgres"])


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser("./test", description=DESCRIPTION, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="no sandbox, no browser, no PostgreSQL: a minute or two")
    parser.add_argument("--postgres", action="store_true", help="run the selected tests on PostgreSQL, not on SQLite")
    options, selection = parser.parse_known_args(arguments)
    interpreter = environment.prepare("dev")
    env = {**_clean_environment(), **browser(options.quick)}
    checks = Checks(interpreter, env)
    started = time.monotonic()
    if not selection and not options.postgres:
        static(checks)
    sqlite = ("-m", marks(options.quick, postgres=False))
    # These import no torch, so Python's development mode (more checks, slower memory) costs little here.
    before = ("-m", "tests.postgres", "-X", "dev")
    on_postgres = Tests("Tests on PostgreSQL", ("-m", marks(options.quick, postgres=True), *selection), before)
    if options.postgres:
        checks.tests(on_postgres)
    elif options.quick or selection:
        checks.tests(Tests("Tests on SQLite", (*sqlite, *selection)))
    else:
        rest = [f"--ignore={path}" for path in OF_PROCESSES]
        checks.side_by_side(
            Tests("Tests on SQLite", (*sqlite, *rest)),
            Tests("Tests of processes, on SQLite", (*sqlite, *OF_PROCESSES)),
            on_postgres,
        )
    say(f"\n{time.monotonic() - started:.0f} s in all")
    if checks.failed:
        say(f"Failed: {', '.join(checks.failed)}")
    say(str(checks.counts))
    return 1 if checks.failed else 0


def _clean_environment() -> dict[str, str]:
    """The user's environment without the settings of a site: no test may touch the database of one."""
    inherited = {name: value for name, value in os.environ.items() if name not in settings.BY_NAME}
    return {**inherited, "DJANGO_SETTINGS_MODULE": "tests.settings", "PYTHONUNBUFFERED": "1"}


def browser(quick: bool) -> dict[str, str]:
    """Environment that tells the browser tests where Chromium is; says so if there is none."""
    if quick:
        return {}
    try:
        return {"PKB_CHROMIUM": str(chromium.find_or_install())}
    except Refusal as refusal:
        if os.environ.get("PKB_TEST_STRICT"):
            raise
        say(f"The browser tests are skipped: {refusal.what} {refusal.remedy}")
        return {}
