"""Fills an empty site with runs for load tests: models, runs, verdicts and scores, with realistic distributions.

    python -m benchmarks.load_data --verdicts 10000 [--seed 1]
    python -m benchmarks.load_data --copies 99

Needs a migrated database with the suite loaded (``manage.py load_suite``); ``DATABASE_URL`` says which. Refuses one
with runs of anybody else. The scores come from the same code as those of real verdicts: ``manage.py rescore --check``
finds no difference. A second call adds up to the number asked for, so that one database can grow from size to size.

The first runs are single-shot on the first target, so that the first page of its board is full at every size; the rest
is a mix of tracks (10 samples, 4 to 20 steps), targets, backends and qualities. There are no reports: pages of
submissions stay without details.

``--copies`` multiplies the mix inside PostgreSQL: each of its runs again with its answers, verdicts and scores, under a
model, cost and day of its own. That makes a million verdicts in minutes, where one by one they would take hours.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import sys
import time
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "pkbsite.settings")
django.setup()

from django.db import connection, transaction  # noqa: E402 (Django is set up first)
from django.db.models import Max  # noqa: E402
from django.utils import timezone  # noqa: E402

from evaluator.contract import PROTOCOL_VERSION  # noqa: E402
from leaderboard import scores, versions  # noqa: E402
from leaderboard.models import (  # noqa: E402
    Attempt,
    AttemptState,
    Evaluation,
    EvaluationScore,
    EvaluationState,
    Provenance,
    RankedModel,
    Run,
    SourceFile,
    Submission,
    Target,
    Team,
    Track,
    TypeScore,
    User,
    Verdict,
)
from problems.models import Problem, Suite  # noqa: E402

TEAMS, MODELS, SOURCES = 40, 160, 400
FULL_PAGE = 101  # single-shot runs on the first target
RUNS_AT_ONCE = 25
BATCH = 2_000
PREFIX = "load-test"
TARGETS = {"h100x4": 5, "h100x8": 3, "h200x8": 2, "b200x8": 2, "cpu-gloo": 1}
BACKENDS = {"cuda": 6, "triton": 3, "parallelkittens": 1}
TRACKS = {Track.SINGLE_SHOT: 60, Track.AGENTIC: 25, Track.MULTI_SAMPLE: 15}
FAILURES = {
    "compile_error": 26,
    "wrong_values": 24,
    "runtime_error": 14,
    "deadlock": 9,
    "imprecise": 7,
    "illegal_memory_access": 6,
    "import_error": 4,
    "wrong_structure": 4,
    "race": 3,
    "out_of_memory": 2,
    "too_slow": 1,
}


@dataclass
class World:
    """Everything that runs refer to, and the one source of chance."""

    chance: random.Random
    suite: Suite
    problems: list[Problem]
    targets: list[Target]
    user: User
    models: list[RankedModel]
    sources: list[SourceFile]
    now: datetime
    types: scores.Types = field(init=False)
    hardness: dict[int, float] = field(init=False)
    quality: dict[int, float] = field(init=False)

    def __post_init__(self) -> None:
        self.types = {problem.number: problem.types for problem in self.problems}
        self.hardness = {p.pk: p.difficulty * 0.9 + self.chance.gauss(0, 0.8) for p in self.problems}
        self.quality = {model.pk: self.chance.gauss(1.2, 1.1) for model in self.models}

    def pick(self, weights: dict[Any, int]) -> Any:
        return self.chance.choices(list(weights), list(weights.values()))[0]


@dataclass
class Portion:
    """Objects of some runs that are written together."""

    runs: list[Run] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    submissions: list[Submission] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def grow(verdicts: int, seed: int = 1) -> int:
    """Add runs until the database holds at least ``verdicts`` verdicts; returns how many it then holds."""
    if Run.objects.exclude(team__slug__startswith=PREFIX).exists():
        sys.exit("This database holds runs that are no load test: give an empty one in DATABASE_URL.")
    world, count = _world(seed), Verdict.objects.count()
    runs = Run.objects.count()
    started = time.monotonic()
    while count < verdicts:
        portion = Portion()
        while len(portion.runs) < RUNS_AT_ONCE and count + len(portion.verdicts) < verdicts:
            _add_run(world, portion, on_full_page=runs + len(portion.runs) < FULL_PAGE)
        _write(world, portion)
        count, runs = count + len(portion.verdicts), runs + len(portion.runs)
        print(f"\r{count:>9} verdicts, {runs} runs, {time.monotonic() - started:.0f} s", end="", flush=True)
    print()
    return count


def _world(seed: int) -> World:
    suite = Suite.objects.current()
    if suite is None:
        sys.exit("No suite is loaded. Run 'python manage.py load_suite' first.")
    found = {target.name: target for target in Target.objects.all()}
    user, _ = User.objects.get_or_create(username=PREFIX)
    return World(
        chance=random.Random(f"{seed} {Run.objects.count()}"),
        suite=suite,
        problems=list(Problem.objects.in_suite(suite)),
        targets=[found[name] for name in TARGETS],
        user=user,
        models=_models(random.Random(seed)),
        sources=_sources(),
        now=timezone.now(),
    )


def _models(chance: random.Random) -> list[RankedModel]:
    teams = [
        Team.objects.get_or_create(slug=f"{PREFIX}-{n}", defaults={"name": f"Load test team {n}"})[0]
        for n in range(TEAMS)
    ]
    return [
        RankedModel.objects.get_or_create(
            slug=f"{PREFIX}-model-{n}",
            defaults={
                "name": f"Model {n}",
                "organisation": f"Organisation {n % 23}",
                "team": chance.choice(teams),
                "open_weights": chance.random() < 0.4,
            },
        )[0]
        for n in range(MODELS)
    ]


def _sources() -> list[SourceFile]:
    texts = [f"# file {n} of a load test\ndef solution(x):\n    return x\n" for n in range(SOURCES)]
    files = [SourceFile(sha256=hashlib.sha256(t.encode()).hexdigest(), size=len(t), text=t) for t in texts]
    SourceFile.objects.bulk_create(files, ignore_conflicts=True)
    return files


def _add_run(world: World, portion: Portion, *, on_full_page: bool) -> None:
    chance = world.chance
    model = chance.choice(world.models)
    track = Track.SINGLE_SHOT if on_full_page else world.pick(TRACKS)
    created = world.now - timedelta(days=chance.uniform(1, 365))
    run = Run(
        team=model.team,
        model=model,
        created_by=world.user,
        track=track,
        backend=world.pick(BACKENDS),
        precision="bf16",
        provenance=world.pick({Provenance.SELF_REPORTED: 6, Provenance.LOGS_ATTACHED: 3, Provenance.MAINTAINERS: 1}),
        cost_usd=round(chance.lognormvariate(3, 1.2), 2) if chance.random() < 0.8 else None,
        licence="Apache-2.0",
        terms_accepted_at=created,
        created_at=created,
    )
    target = world.targets[0] if on_full_page else chance.choices(world.targets, list(TARGETS.values()))[0]
    evaluation = Evaluation(
        run=run,
        target=target,
        suite=world.suite,
        protocol_version=PROTOCOL_VERSION,
        state=EvaluationState.COMPLETED,
        created_at=created,
        finished_at=created + timedelta(hours=chance.uniform(0.2, 9)),
    )
    portion.runs.append(run)
    portion.evaluations.append(evaluation)
    for problem in world.problems:
        if chance.random() < 0.95:  # few answer everything
            _add_answers(world, portion, run, evaluation, problem)


def _add_answers(world: World, portion: Portion, run: Run, evaluation: Evaluation, problem: Problem) -> None:
    chance = world.chance
    answers = {Track.SINGLE_SHOT: 1, Track.MULTI_SAMPLE: 10, Track.AGENTIC: chance.randint(4, 20)}[Track(run.track)]
    # Steps cost half of what the run cost or less, so that this holds for every copy of it too.
    priced = run.track == Track.AGENTIC and run.cost_usd is not None
    cost = round(Decimal(run.cost_usd) / (40 * len(world.problems)), 6) if priced else None
    for number in range(answers):
        learned = 0.06 * number if run.track == Track.AGENTIC else 0.0
        submission = Submission(
            run=run,
            problem=problem,
            source=chance.choice(world.sources),
            file_name=f"{problem.number}_{problem.slug}_{run.backend}.py",
            sample=number if run.track == Track.MULTI_SAMPLE else 0,
            step=number if run.track == Track.AGENTIC else 0,
            cost_usd=cost,
            created_at=run.created_at,
        )
        attempt = Attempt(
            evaluation=evaluation,
            submission=submission,
            target=evaluation.target,
            state=AttemptState.RECORDED,
            created_at=run.created_at,
            finished_at=evaluation.finished_at,
        )
        portion.submissions.append(submission)
        portion.attempts.append(attempt)
        portion.verdicts.append(_verdict(world, evaluation, submission, attempt, learned))


def _verdict(world: World, evaluation: Evaluation, submission: Submission, attempt: Attempt, learned: float) -> Verdict:
    chance = world.chance
    merit = world.quality[submission.run.model_id] - 0.5 * world.hardness[submission.problem_id] + learned
    correct = chance.random() < 1 / (1 + 2.718281828 ** (-merit))
    made = {
        "evaluation": evaluation,
        "submission": submission,
        "attempt": attempt,
        "problem_id": submission.problem_id,
        "target_id": evaluation.target_id,
        "seconds": round(chance.lognormvariate(4, 0.5), 2),
        "created_at": evaluation.finished_at,
    }
    if not correct:
        code = world.pick(FAILURES)
        return Verdict(
            **made,
            code=code,
            decision="none",
            message=f"A load test's {code}.",
            failure_id=f"{chance.randrange(900):x}",
        )
    speedup = chance.lognormvariate(0.05 + 0.08 * merit, 0.35)
    spread = chance.uniform(0.01, 0.06)
    low, high = speedup * (1 - spread), speedup * (1 + spread)
    seconds = chance.lognormvariate(-7, 1)
    return Verdict(
        **made,
        code="correct",
        decision="faster" if low > 1.01 else "slower" if high < 0.99 else "tie",
        message="Correct on every rank.",
        speedup=speedup,
        speedup_low=low,
        speedup_high=high,
        reference_seconds=seconds * speedup,
        candidate_seconds=seconds,
        bound_seconds=seconds * (utilisation := chance.betavariate(2, 4)),
        utilisation=utilisation,
        compatible_correct=chance.random() < 0.97,
        compatible_speedup=speedup * chance.uniform(0.97, 1.04),
        mechanisms=chance.sample(["nccl", "copy_engine", "tma", "peer_access", "multimem"], chance.randint(1, 2)),
    )


def _write(world: World, portion: Portion) -> None:
    by_evaluation: dict[int, list[Verdict]] = {id(evaluation): [] for evaluation in portion.evaluations}
    for verdict in portion.verdicts:
        by_evaluation[id(verdict.evaluation)].append(verdict)
    computed = [
        scores.compute_from(found, world.types, track=found[0].submission.run.track, submissions=len(found))
        for found in by_evaluation.values()
    ]
    with transaction.atomic():
        for model, objects in (
            (Run, portion.runs),
            (Evaluation, portion.evaluations),
            (Submission, portion.submissions),
            (Attempt, portion.attempts),
            (Verdict, portion.verdicts),
        ):
            model.objects.bulk_create(objects, batch_size=BATCH)  # type: ignore[attr-defined]
        stored = EvaluationScore.objects.bulk_create(
            EvaluationScore(evaluation=evaluation, **figures)
            for evaluation, (figures, _) in zip(portion.evaluations, computed, strict=True)
        )
        TypeScore.objects.bulk_create(
            TypeScore(score=score, **row) for score, (_, rows) in zip(stored, computed, strict=True) for row in rows
        )
        versions.bump()


# Table -> how columns of a copy differ from those of its original; ``k`` counts the copies. A key moves on by the
# largest key of its table for each copy, and so does every reference to it.
_ID, _NAME = "src.id + k * {stride}", "substr(md5(src.public_id || k), 1, 12)"
_UUID = "md5({column}::text || k)::uuid"
COPIED: dict[type[Any], dict[str, str]] = {
    Run: {
        "id": _ID,
        "public_id": _NAME,
        "model_id": "(select id from {models} offset (hashtext(src.public_id || k) & 1023) %% {model_count} limit 1)",
        "cost_usd": "src.cost_usd * (0.5 + (hashtext(src.public_id || k) & 255) / 256.0)",
        "created_at": "src.created_at - make_interval(mins => k)",
    },
    Evaluation: {"id": _ID, "public_id": _NAME, "run_id": "{run}"},
    Submission: {"id": _ID, "public_id": _NAME, "run_id": "{run}"},
    Attempt: {"id": _UUID, "evaluation_id": "{evaluation}", "submission_id": "{submission}"},
    Verdict: {"id": _ID, "evaluation_id": "{evaluation}", "submission_id": "{submission}", "attempt_id": _UUID},
    EvaluationScore: {"id": _ID, "evaluation_id": "{evaluation}"},
    TypeScore: {"id": _ID, "score_id": "{evaluationscore}"},
}


_EVALUATIONS = "(select run_id from leaderboard_evaluation as e where e.id = evaluation_id)"
_SCORES = (
    "(select run_id from leaderboard_evaluationscore as s "
    "join leaderboard_evaluation as e on e.id = s.evaluation_id where s.id = score_id)"
)
_OF_RUN: dict[type[Any], str] = {  # the run that a row belongs to
    Run: "id",
    Evaluation: "run_id",
    Submission: "run_id",
    Attempt: _EVALUATIONS,
    Verdict: _EVALUATIONS,
    EvaluationScore: _EVALUATIONS,
    TypeScore: _SCORES,
}


def multiply(copies: int) -> int:
    """Add ``copies`` copies of every run, by statements of PostgreSQL alone; returns the number of verdicts then."""
    if connection.vendor != "postgresql":
        sys.exit("--copies works on PostgreSQL only: give its address in DATABASE_URL.")
    strides = {model: model.objects.aggregate(n=Max("pk"))["n"] for model in COPIED if model is not Attempt}
    mix = Run.objects.order_by("pk").values_list("pk", flat=True)[FULL_PAGE]
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("set local session_replication_role = replica")  # references are right by construction
        for model, changes in COPIED.items():
            cursor.execute(_copying(model, changes, strides), [mix, copies])
            if model is not Attempt:
                table = model._meta.db_table
                cursor.execute(f"select setval(pg_get_serial_sequence('{table}', 'id'), max(id)) from {table}")  # noqa: S608
            print(f"{model.__name__} copied", flush=True)
        versions.bump()
    with connection.cursor() as cursor:
        cursor.execute("analyze")
    return Verdict.objects.count()


def _copying(model: type[Any], changes: dict[str, str], strides: dict[type[Any], int]) -> str:
    table = model._meta.db_table
    columns = [field.column for field in model._meta.concrete_fields]
    moved = {found.__name__.lower(): f"src.{found.__name__.lower()}_id + k * {n}" for found, n in strides.items()}
    moved["evaluationscore"] = f"src.score_id + k * {strides[EvaluationScore]}"
    values = [
        changes[column].format(
            stride=strides.get(model, 0),
            column=f"src.{column}",
            models=RankedModel._meta.db_table,
            model_count=RankedModel.objects.count(),
            **moved,
        )
        if column in changes
        else f"src.{column}"
        for column in columns
    ]
    return (  # names of our own tables and columns, and numbers
        f"insert into {table} ({', '.join(columns)}) select {', '.join(values)} "  # noqa: S608
        f"from (select * from {table} where {_OF_RUN[model]} >= %s) as src cross join generate_series(1, %s) as k"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked = parser.add_mutually_exclusive_group(required=True)
    asked.add_argument("--verdicts", type=int)
    asked.add_argument("--copies", type=int)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if options.verdicts:
        grow(options.verdicts, options.seed)
    else:
        print(f"{multiply(options.copies)} verdicts")
    return 0


if __name__ == "__main__":
    sys.exit(main())
