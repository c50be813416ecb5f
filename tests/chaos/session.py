"""One site, many runs of chaos on it. Imported only once Django is set up for the cluster's database."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from django.core.management import call_command
from django.db import InterfaceError, OperationalError, connection

from leaderboard import membership
from leaderboard.models import (
    Attempt,
    AttemptState,
    AuditEvent,
    Evaluation,
    EvaluationState,
    RankedModel,
    Run,
    Submission,
    Target,
    User,
    Verdict,
    Worker,
)
from tests.chaos.cluster import TARGET, WORKERS, Cluster
from tests.chaos.faults import FAULTS, Chaos
from tests.chaos.invariants import breaches
from tests.chaos.people import Person

T = TypeVar("T")
TEAMS, FILES = 3, (4, 12)
RECOVERY = 240.0  # seconds after the last fault within which everything must be over, on a busy machine
OPEN = (EvaluationState.QUEUED, EvaluationState.RUNNING)


def patiently(question: Callable[[], T]) -> T:
    """Ask the database until it answers: it is one of the things that are killed."""
    end = time.monotonic() + 60
    while True:
        try:
            return question()
        except (OperationalError, InterfaceError):
            connection.close()
            if time.monotonic() > end:
                raise
            time.sleep(0.5)


@dataclass
class Session:
    """The cluster with its teams. ``faults``: names of those that may be used."""

    cluster: Cluster
    seed: int
    faults: tuple[str, ...] = tuple(FAULTS)
    people: list[Person] = field(default_factory=list)

    def prepare(self) -> None:
        """Database, suite, teams and workers; then every process."""
        call_command("migrate", verbosity=0)
        call_command("collectstatic", interactive=False, verbosity=0)
        call_command("load_suite", verbosity=0)
        for number in range(TEAMS):
            user = User.objects.create_user(f"person{number}", f"person{number}@example.org")
            team = membership.found_team(user, name=f"Team {number}")
            model = membership.enter_model(user, team, name=f"Model {number}", organisation="", open_weights=False)
            self.people.append(Person(user, model, self.cluster.site_url))
        for name in WORKERS:
            worker = Worker.objects.create(name=name, target=Target.objects.get(name=TARGET))
            self.cluster.keys[name] = worker.key
        self.cluster.start(*self.cluster.names)

    def run(self, number: int) -> dict[str, Any]:
        """Submissions under faults, recovery, and what was found, as one line for the record."""
        chance = random.Random(f"{self.seed}:{number}")
        chosen = [chance.choice(self.faults) for _ in range(chance.randint(2, 4))]
        started, before = time.monotonic(), self._marks()
        with ThreadPoolExecutor(TEAMS) as pool:
            sent = [pool.submit(self._visit, person, chance.random()) for person in self.people]
            done = self._break(chosen, chance, started)
            cancelled = self._maybe_cancel(sent, chance)
            run_ids = [future.result() for future in sent]
        broken = time.monotonic()
        pks = list(patiently(lambda: list(Run.objects.filter(public_id__in=run_ids).values_list("pk", flat=True))))
        stuck = self._recover(pks)
        found = patiently(lambda: breaches(pks))
        return {
            "run": number,
            "seed": self.seed,
            "faults": done,
            "cancelled": cancelled,
            **patiently(lambda: self._counts(pks, before)),
            "ended_by_itself": self.cluster.ended[:],
            "seconds": round(time.monotonic() - started, 1),
            "recovery_seconds": round(time.monotonic() - broken, 1),
            "breaches": [*(["not over after recovery"] if stuck else []), *found],
        }

    def _visit(self, person: Person, seed: float) -> str:
        chance = random.Random(seed)
        time.sleep(chance.uniform(0, 3))
        return person.submit(chance, files=chance.randint(*FILES))

    def _break(self, chosen: list[str], chance: random.Random, started: float) -> list[list[object]]:
        chaos = Chaos(self.cluster, chance)
        self.cluster.ended.clear()
        done: list[list[object]] = []
        for name in chosen:
            time.sleep(chance.uniform(0, 2))
            done.append([round(time.monotonic() - started, 1), name])
            FAULTS[name](chaos)
            self.cluster.supervise()
        return done

    def _maybe_cancel(self, sent: list[Future[str]], chance: random.Random) -> bool:
        """One team in four changes its mind while everything is broken."""
        if chance.random() > 0.25:
            return False
        run_id = sent[0].result()
        evaluation = patiently(lambda: Evaluation.objects.get(run__public_id=run_id))
        self.people[0].cancel(run_id, evaluation.public_id)
        return True

    def _recover(self, pks: list[int]) -> bool:
        """Wait until every evaluation is over; True if that did not happen."""
        end = time.monotonic() + RECOVERY
        unfinished = Evaluation.objects.filter(run__in=pks, state__in=OPEN)
        while patiently(unfinished.exists):
            self.cluster.supervise()
            if time.monotonic() > end:
                return True
            time.sleep(0.5)
        return False

    def _marks(self) -> int:
        return patiently(lambda: AuditEvent.objects.filter(action="refuse message").count())

    def _counts(self, pks: list[int], refused_before: int) -> dict[str, int]:
        verdicts = Verdict.objects.filter(evaluation__run__in=pks)
        meant = verdicts.filter(submission__source__text__contains="# judge: fail").count()
        failures = verdicts.filter(code="harness_failure").count()
        return {
            "submissions": Submission.objects.filter(run__in=pks).count(),
            "verdicts": verdicts.count(),
            "failures_of_ours": failures - meant,
            "lost_attempts": Attempt.objects.filter(evaluation__run__in=pks, state=AttemptState.LOST).count(),
            "refused_messages": self._marks() - refused_before,
        }

    def final_check(self) -> list[str]:
        """Everything once more, over all runs: what came late may have changed an old one."""
        found = breaches(Run.objects.values_list("pk", flat=True))
        call_command("rescore", check=True)
        models = RankedModel.objects.filter(runs__isnull=False).distinct().count()
        return found if models == TEAMS else [*found, f"{models} models have runs, {TEAMS} sent some"]
