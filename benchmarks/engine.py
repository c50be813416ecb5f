"""The job engine under a long queue: ``python -m benchmarks.engine [--files 10000] [--sqlite]``.

Many runs of a whole suite are queued; stub judges answer each file in 10 ms. The processes are those of production
(broker, results worker, beat, housekeeping, two evaluation workers), all on this machine. Measured are the rates of
queueing and of verdicts, the memory of each process as the queue is worked off, and what happens when every process is
killed in the middle. Processor time per verdict is given, too: it says what the engine needs also on a machine that is
busy with other things. Ends with status 1 if a submission has not exactly one verdict, or a stored score is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.chaos.cluster import TARGET, WORKERS, Cluster
from tests.chaos.faults import Chaos

TEAMS = 5
ENGINE = ("broker", "results", "beat", "housekeeping", *WORKERS)
PATIENCE = 300.0  # seconds without a single verdict that end the measurement
# Leases as in production: nothing is lost here but what is killed. Looked after more often, for a short recovery.
SETTINGS = {"PKB_LEASE_SECONDS": "20", "PKB_CLAIM_SECONDS": "20", "PKB_REAPER_SECONDS": "5", "PKB_RESEND_SECONDS": "20"}


def main() -> int:
    parser = argparse.ArgumentParser("python -m benchmarks.engine", description=__doc__)
    parser.add_argument("--files", type=int, default=10_000)
    parser.add_argument("--sqlite", action="store_true", help="the embedded database in place of PostgreSQL")
    parser.add_argument("--no-kill", action="store_true", help="kill nothing")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that nothing is left running
    with tempfile.TemporaryDirectory(prefix="pkb-engine-") as folder:
        Path(folder).chmod(0o755)  # the database's system user must get through
        cluster = Cluster(Path(folder), sqlite=options.sqlite, settings=SETTINGS)
        try:
            return _measure(cluster, options)
        finally:
            cluster.stop()


def _measure(cluster: Cluster, options: argparse.Namespace) -> int:
    cluster.database.start()
    os.environ.update(cluster.environment, DJANGO_SETTINGS_MODULE="pkbsite.settings", LOG_LEVEL="ERROR")
    import django

    django.setup()
    from django.core.management import call_command

    from leaderboard.models import Run
    from tests.chaos.invariants import breaches

    call_command("migrate", verbosity=0)
    call_command("load_suite", verbosity=0)
    cluster.start("broker")
    started = time.monotonic()
    _queue(cluster, options.files)
    queued = time.monotonic() - started
    cluster.start(*ENGINE[1:])
    result: dict[str, Any] = {
        "database": "sqlite" if options.sqlite else "postgresql",
        "files": options.files,
        "queued_per_second": round(options.files / queued, 1),
        **_work_off(cluster, options.files, kill=not options.no_kill),
    }
    found = breaches(Run.objects.values_list("pk", flat=True))
    call_command("rescore", check=True)
    result["breaches"] = found
    print(json.dumps(result, indent=1))
    return 1 if found else 0


def _queue(cluster: Cluster, files: int) -> None:
    """Runs of up to 87 files, by turns of five teams, each in one transaction as intake confirms them."""
    from django.db import transaction
    from django.utils import timezone

    from evaluator.contract import PROTOCOL_VERSION
    from leaderboard import lifecycle, membership
    from leaderboard.models import Evaluation, Run, SourceFile, Submission, Target, User, Worker
    from problems.models import Problem, Suite

    target, suite = Target.objects.get(name=TARGET), Suite.objects.current()
    assert suite is not None
    for name in WORKERS:
        cluster.keys[name] = Worker.objects.create(name=name, target=target).key
    source = SourceFile.objects.create(
        sha256="0" * 64, size=1, text="# judge: correct\ndef solution(x):\n    return x\n"
    )
    problems = list(Problem.objects.in_suite(suite))
    user = User.objects.create_user("benchmark", "benchmark@example.org")
    teams = [membership.found_team(user, name=f"Team {number}") for number in range(TEAMS)]
    models = [membership.enter_model(user, t, name=f"Model {t}", organisation="", open_weights=False) for t in teams]
    left = files
    while left:
        model = models[left % TEAMS]
        with transaction.atomic():
            run = Run.objects.create(
                team=model.team,
                model=model,
                created_by=user,
                track="multi-sample",
                backend="pytorch",
                precision="fp32",
                licence="MIT",
                terms_accepted_at=timezone.now(),
            )
            submissions = Submission.objects.bulk_create(
                Submission(run=run, problem=problem, source=source, file_name=f"{problem.number}.py")
                for problem in problems[: min(left, len(problems))]
            )
            evaluation = Evaluation.objects.create(
                run=run, target=target, suite=suite, protocol_version=PROTOCOL_VERSION
            )
            lifecycle.queue_attempts(evaluation, [submission.pk for submission in submissions])
        left -= len(submissions)


def _work_off(cluster: Cluster, files: int, *, kill: bool) -> dict[str, Any]:
    from leaderboard.models import Verdict

    marks = [files // 10, files // 2, files]
    memory: dict[str, dict[str, float]] = {}
    cpu: list[tuple[int, dict[str, float]]] = []
    started = last_change = time.monotonic()
    done, recovery, stood = 0, None, 0.0
    while done < files:
        time.sleep(1)
        cluster.supervise()
        now, count = time.monotonic(), Verdict.objects.count()
        if count > done:
            done, last_change = count, now
        if now - last_change > PATIENCE:
            raise SystemExit(f"no verdict for {PATIENCE:.0f} s after {done} of {files}")
        while marks and done >= marks[0]:
            memory[str(marks.pop(0))] = {n: round(cluster.resident_bytes(n) / 1e6, 1) for n in ENGINE}
            cpu.append((done, {name: cluster.cpu_seconds(name) for name in ENGINE}))
            print(f"{done} verdicts after {now - started:.0f} s", flush=True)
        if kill and recovery is None and done >= files * 6 // 10:
            recovery, stood = _kill_everything(cluster)
            last_change = time.monotonic()
    return {
        "verdicts_per_second": round(files / (time.monotonic() - started - stood), 1),
        "resident_megabytes": memory,
        "cpu_milliseconds_per_verdict": _cost(*cpu[:2]),
        "seconds_from_restart_to_next_verdict": recovery,
        "ended_by_itself": cluster.ended,
    }


def _cost(early: tuple[int, dict[str, float]], late: tuple[int, dict[str, float]]) -> dict[str, float]:
    """Milliseconds of processor time for each verdict between two moments, by process; of workers with their judges."""
    verdicts = late[0] - early[0]
    return {name: round(1_000 * (late[1][name] - early[1][name]) / verdicts, 1) for name in ENGINE}


def _kill_everything(cluster: Cluster) -> tuple[float, float]:
    """Seconds from the moment at which all processes run again to the next verdict, and from the kill to it."""
    from django.db import connection

    from leaderboard.models import Verdict

    before = time.monotonic()
    cluster.start("web")  # killed with the others
    connection.close()
    Chaos(cluster, random.Random(1)).kill_everything()
    cluster.kill("web")
    cluster.down.discard("web")
    restarted, count = time.monotonic(), Verdict.objects.count()
    while Verdict.objects.count() == count:
        time.sleep(0.1)
    return round(time.monotonic() - restarted, 1), time.monotonic() - before


if __name__ == "__main__":
    sys.exit(main())
