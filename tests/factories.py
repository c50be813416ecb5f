"""Makes rows for tests. Each factory makes a valid object with everything that it needs; name only what matters."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from typing import Any

import factory
from django.utils import timezone
from factory.django import DjangoModelFactory

from evaluator.contract import PROTOCOL_VERSION
from leaderboard import models, scores
from problems.models import Problem, ProblemVersion, Suite


class UserFactory(DjangoModelFactory):
    class Meta:
        model = models.User
        skip_postgeneration_save = True

    username = factory.Sequence(lambda n: f"user{n}")
    email = factory.LazyAttribute(lambda user: f"{user.username}@example.org")
    password = factory.django.Password("a long password 1")


class TeamFactory(DjangoModelFactory):
    class Meta:
        model = models.Team

    name = factory.Sequence(lambda n: f"Team {n}")
    slug = factory.Sequence(lambda n: f"team-{n}")


class MembershipFactory(DjangoModelFactory):
    class Meta:
        model = models.Membership

    team = factory.SubFactory(TeamFactory)
    user = factory.SubFactory(UserFactory)


class RankedModelFactory(DjangoModelFactory):
    class Meta:
        model = models.RankedModel

    name = factory.Sequence(lambda n: f"Model {n}")
    slug = factory.Sequence(lambda n: f"model-{n}")
    organisation = "Example Labs"
    team = factory.SubFactory(TeamFactory)


class ProblemFactory(DjangoModelFactory):
    class Meta:
        model = Problem
        django_get_or_create = ("number",)

    number = factory.Sequence(lambda n: n + 1)
    slug = factory.LazyAttribute(lambda problem: f"problem_{problem.number}")
    title = factory.LazyAttribute(lambda problem: f"Problem {problem.number}")
    type = "tensor"
    difficulty = 2


class ProblemVersionFactory(DjangoModelFactory):
    class Meta:
        model = ProblemVersion
        django_get_or_create = ("digest",)

    problem = factory.SubFactory(ProblemFactory)
    digest = factory.LazyAttribute(lambda version: hashlib.sha256(str(version.problem.number).encode()).hexdigest())
    statement = "Sum over all ranks."
    signature = "solution(x: torch.Tensor) -> torch.Tensor"
    reference = "def solution(x):\n    return x\n"


class SuiteFactory(DjangoModelFactory):
    """A current suite of ``size`` problems of type tensor."""

    class Meta:
        model = Suite
        skip_postgeneration_save = True

    version = factory.Sequence(lambda n: f"1.{n}")
    is_current = False

    @factory.post_generation
    def size(suite: Suite, create: bool, extracted: int | None, **kwargs: Any) -> None:
        suite.problem_versions.set(ProblemVersionFactory.create_batch(3 if extracted is None else extracted))


class TargetFactory(DjangoModelFactory):
    class Meta:
        model = models.Target
        django_get_or_create = ("name",)

    name = "cpu-gloo"
    title = "4 ranks on the CPU, gloo"
    device = "cpu"
    world_size = 4
    precision = "fp32"
    precisions = ("fp32", "bf16")
    queue = factory.LazyAttribute(lambda target: f"eval.{target.name}")


class WorkerFactory(DjangoModelFactory):
    class Meta:
        model = models.Worker

    name = factory.Sequence(lambda n: f"worker-{n}")
    target = factory.SubFactory(TargetFactory)


class SourceFileFactory(DjangoModelFactory):
    class Meta:
        model = models.SourceFile
        django_get_or_create = ("sha256",)

    text = factory.Sequence(lambda n: f"def solution(x):\n    return x + {n}\n")
    sha256 = factory.LazyAttribute(lambda source: hashlib.sha256(source.text.encode()).hexdigest())
    size = factory.LazyAttribute(lambda source: len(source.text.encode()))


class RunFactory(DjangoModelFactory):
    class Meta:
        model = models.Run

    model = factory.SubFactory(RankedModelFactory)
    team = factory.SelfAttribute("model.team")
    created_by = factory.SubFactory(UserFactory)
    track = models.Track.SINGLE_SHOT
    backend = "pytorch"
    precision = "fp32"
    licence = "Apache-2.0"
    terms_accepted_at = factory.LazyFunction(timezone.now)


class SubmissionFactory(DjangoModelFactory):
    class Meta:
        model = models.Submission

    run = factory.SubFactory(RunFactory)
    problem = factory.SubFactory(ProblemFactory)
    source = factory.SubFactory(SourceFileFactory)
    file_name = factory.LazyAttribute(lambda s: f"{s.problem.number}_{s.problem.slug}_{s.run.backend}.py")


class EvaluationFactory(DjangoModelFactory):
    class Meta:
        model = models.Evaluation

    run = factory.SubFactory(RunFactory)
    target = factory.SubFactory(TargetFactory)
    suite = factory.SubFactory(SuiteFactory)
    protocol_version = PROTOCOL_VERSION


class AttemptFactory(DjangoModelFactory):
    class Meta:
        model = models.Attempt

    evaluation = factory.SubFactory(EvaluationFactory)
    submission = factory.LazyAttribute(lambda attempt: SubmissionFactory(run=attempt.evaluation.run))
    target = factory.SelfAttribute("evaluation.target")

    class Params:
        leased = factory.Trait(
            state=models.AttemptState.LEASED,
            worker=factory.LazyAttribute(lambda attempt: WorkerFactory(target=attempt.evaluation.target)),
            leased_at=factory.LazyFunction(timezone.now),
            lease_expires_at=factory.LazyFunction(lambda: timezone.now() + timedelta(seconds=60)),
        )


class VerdictFactory(DjangoModelFactory):
    """A verdict with its recorded attempt; correct and twice as fast unless told otherwise."""

    class Meta:
        model = models.Verdict

    evaluation = factory.SubFactory(EvaluationFactory)
    submission = factory.LazyAttribute(lambda verdict: SubmissionFactory(run=verdict.evaluation.run))
    attempt = factory.LazyAttribute(
        lambda verdict: AttemptFactory(
            evaluation=verdict.evaluation,
            submission=verdict.submission,
            state=models.AttemptState.RECORDED,
            finished_at=timezone.now(),
        )
    )
    problem = factory.SelfAttribute("submission.problem")
    target = factory.SelfAttribute("evaluation.target")
    code = "correct"
    decision = factory.LazyAttribute(lambda verdict: "faster" if verdict.code == "correct" else "none")
    message = "Correct on every rank."
    speedup = factory.LazyAttribute(lambda verdict: 2.0 if verdict.code == "correct" else None)
    speedup_low = factory.LazyAttribute(lambda verdict: verdict.speedup and verdict.speedup * 0.95)
    speedup_high = factory.LazyAttribute(lambda verdict: verdict.speedup and verdict.speedup * 1.05)
    seconds = 12.0


def evaluated_run(*codes: str, suite: Suite, **run: Any) -> models.Evaluation:
    """A run on cpu-gloo with the given outcome on the first problems of ``suite``, completed, with its scores.

    An outcome is a failure code or the decision of a correct answer: "faster", "tie", "slower".
    """
    evaluation = EvaluationFactory(run=RunFactory(**run), suite=suite, state=models.EvaluationState.COMPLETED)
    problems = Problem.objects.in_suite(suite)
    for code, problem in zip(codes, problems, strict=False):
        correct = code in ("faster", "tie", "slower")
        VerdictFactory(
            evaluation=evaluation,
            submission=SubmissionFactory(run=evaluation.run, problem=problem),
            code="correct" if correct else code,
            decision=code if correct else "none",
            speedup={"faster": 2.0, "tie": 1.0, "slower": 0.5}.get(code),
        )
    scores.materialise(evaluation)
    return evaluation
