"""``python -m tests.chaos --runs 100 --seed 1 --lines chaos.jsonl``: break a site at random and record what came of it.

Each run is one JSON line; started again with the same file and seed, it goes on with the runs that are missing.
``python -m tests.chaos --table chaos.jsonl`` prints the table of docs/reliability.md. Exit status 1: a breach.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.chaos.cluster import ROOT, Cluster
from tests.chaos.faults import FAULTS
from tests.chaos.table import table

_INSIDE = "PKB_CHAOS_INSIDE"


def main() -> int:
    parser = argparse.ArgumentParser("python -m tests.chaos", description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--lines", type=Path, help="file to which each run adds its line")
    parser.add_argument("--faults", nargs="+", choices=FAULTS, help="only these")
    parser.add_argument("--table", type=Path, help="print the table of such a file and do nothing else")
    options = parser.parse_args()
    if options.table:
        print(table([json.loads(line) for line in options.table.read_text().splitlines()]))
        return 0
    _own_mounts()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="pkb-chaos-") as folder:
        Path(folder).chmod(0o755)  # the database's system user must get through
        cluster = Cluster(Path(folder))
        try:
            return _session(cluster, options)
        finally:
            cluster.stop()


def _session(cluster: Cluster, options: argparse.Namespace) -> int:
    cluster.database.start()
    os.environ.update(cluster.environment, DJANGO_SETTINGS_MODULE="pkbsite.settings", LOG_LEVEL="WARNING")
    import django

    django.setup()
    from tests.chaos.session import Session

    faults = tuple(options.faults or FAULTS)
    if not cluster.mounted:
        print("full_disk is left out: a file system can be mounted by root only", flush=True)
        faults = tuple(name for name in faults if name != "full_disk")
    session = Session(cluster, options.seed, faults)
    session.prepare()
    before = _lines(options.lines)
    done = {line["run"] for line in before if line["seed"] == options.seed}
    breaches = 0
    for number in range(options.runs):
        if number in done:
            continue
        line = {"commit": _commit(), **session.run(number)}
        text = json.dumps(line)
        print(text, flush=True)
        breaches += len(line["breaches"])
        if options.lines:
            with options.lines.open("a") as file:
                file.write(text + "\n")
    found = session.final_check()
    print("\n".join(found) or "All runs together: no breach.", flush=True)
    return 1 if breaches or found else 0


def _lines(path: Path | None) -> list[dict[str, object]]:
    if path is None or not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines()]


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() or os.environ.get("PKB_CHAOS_COMMIT", "")


def _own_mounts() -> None:
    """Start again with mounts of our own, so that a small file system leaves no trace; only root may."""
    if os.geteuid() == 0 and _INSIDE not in os.environ:
        os.environ[_INSIDE] = "1"
        command = ["unshare", "--mount", "--propagation", "private", sys.executable, "-m", "tests.chaos", *sys.argv[1:]]
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    sys.exit(main())
