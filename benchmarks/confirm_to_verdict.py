"""How long a team waits: from confirming an upload of six files to the verdict of each, on a site of its own.

    python -m benchmarks.confirm_to_verdict

Starts ``./run demo`` around an empty data folder, waits for the verdicts of the first demonstration run (six correct
kernels, all of which are timed), stops the site, and prints for each file when it was taken up, when its verdict stood,
and how long the evaluation itself took. The rest of the waiting is queue and messages.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

from launcher.network import free_port

ROOT = Path(__file__).resolve().parent.parent
FILES = 6
PATIENCE = 1_800.0
PER_FILE = """
    select submission.file_name, evaluation.created_at, attempt.leased_at, verdict.created_at,
           verdict.seconds, verdict.code, verdict.decision
    from leaderboard_verdict as verdict
    join leaderboard_attempt as attempt on attempt.id = verdict.attempt_id
    join leaderboard_evaluation as evaluation on evaluation.id = verdict.evaluation_id
    join leaderboard_submission as submission on submission.id = verdict.submission_id
    where evaluation.id = (select min(id) from leaderboard_evaluation)
    order by verdict.created_at
"""


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pkb-benchmark-") as folder:
        command = [str(ROOT / "run"), "demo", "--data", folder, "--port", str(free_port())]
        environment = {**os.environ, "PKB_VENV": sys.prefix, "PKB_CANARY_SECONDS": "0"}
        site = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        try:
            rows = wait_for_verdicts(Path(folder) / "pkbsite.sqlite3", site)
        finally:
            site.send_signal(signal.SIGINT)
            site.wait(60)
    print(f"{'file':<50}{'taken up':>10}{'verdict':>10}{'evaluation':>12}  outcome")
    for name, *moments, seconds, code, decision in rows:
        confirmed, taken, decided = (datetime.fromisoformat(str(moment)) for moment in moments)
        waited, total = (taken - confirmed).total_seconds(), (decided - confirmed).total_seconds()
        print(f"{name:<50}{waited:>8.1f} s{total:>8.1f} s{seconds:>10.1f} s  {code} {decision}")
    busy = sum(row[4] for row in rows)
    print(f"From confirm to the last of {len(rows)} verdicts {total:.1f} s, of which evaluations {busy:.1f} s.")


def wait_for_verdicts(database: Path, site: subprocess.Popen[bytes]) -> list[tuple[Any, ...]]:
    """The rows of ``PER_FILE`` once all files have their verdict. Exits if the site ends or takes too long."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        time.sleep(1)
        if site.poll() is not None:
            raise SystemExit(f"./run ended with status {site.returncode}.")
        if not database.exists():
            continue
        with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10)) as connection:
            try:
                rows: list[tuple[Any, ...]] = connection.execute(PER_FILE).fetchall()
            except sqlite3.OperationalError:  # the tables are not there yet
                continue
        if len(rows) == FILES:
            return rows
    raise SystemExit(f"Not all of the {FILES} files had a verdict within {PATIENCE:.0f} s.")


if __name__ == "__main__":
    main()
