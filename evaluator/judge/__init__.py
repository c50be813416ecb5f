"""The judge: the trusted process that turns a job into a report. It never imports a submission.

This module stays light: the sandboxes are started before torch is imported here, so that all three imports of it run
at the same time.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from contextlib import ExitStack

from evaluator import demonstration, targets
from evaluator.contract import Job, Phase, Progress, Report, TracePart
from evaluator.gpus import GpusUnavailable
from evaluator.judge import mechanisms, needs, static
from evaluator.judge.arm import Arm
from evaluator.judge.faults import Fault, HarnessFault
from evaluator.judge.hardware import hardware_of
from evaluator.judge.record import Record
from evaluator.sandbox import SandboxLeftovers, SandboxUnavailable
from problems.suite import registry

__all__ = ["evaluate"]

log = logging.getLogger(__name__)


def _nobody_listens(progress: Progress) -> None:
    """Takes progress where nobody wants to hear of it."""


def _nobody_keeps(part: TracePart) -> None:
    """Takes traces where nobody wants them."""


def evaluate(
    job: Job,
    *,
    progress: Callable[[Progress], None] = _nobody_listens,
    with_timing: bool = True,
    with_probes: bool | None = None,
    traces: Callable[[TracePart], None] = _nobody_keeps,
) -> Report:
    """Evaluates a job. Whatever the submission does ends in a report, and so does whatever goes wrong with us.

    ``progress`` is called with every sign of life. ``with_timing`` False leaves the comparison of speed out;
    ``with_probes`` None makes the probes where speed is compared. ``traces`` is called with the traces of all ranks,
    piece by piece, where the job asks for a profile; the report says of each how long it is.
    """
    probing = with_timing if with_probes is None else with_probes
    record = Record(job, progress)
    try:
        with ExitStack() as stack:
            _evaluate(job, record, stack, with_timing, probing)
    except Fault as fault:
        target = targets.targets().get(job.target)  # an invalid file is found before an unknown target is
        record.fail(needs.reconsidered(fault, mechanisms.scan(job.source), target) if target else fault)
    except (HarnessFault, SandboxUnavailable, SandboxLeftovers, GpusUnavailable) as fault:
        log.error("evaluation %s: %s", job.attempt_id, fault)
        record.harness_failure(str(fault))
    except Exception as error:
        log.exception("evaluation %s", job.attempt_id)
        place = traceback.extract_tb(error.__traceback__)[-1]
        record.harness_failure(f"The judge failed: {type(error).__name__} in {place.name}; its log has the traceback.")
    for trace in record.traces:
        for part in trace.parts(job.attempt_id):
            traces(part)
    return record.report()


def _evaluate(job: Job, record: Record, stack: ExitStack, with_timing: bool, with_probes: bool) -> None:
    with record.phase(Phase.STATIC, "reading the file"):
        static.examine(job.source)
    _check_job(job, record)
    if hint := needs.device_hint(mechanisms.scan(job.source), targets.target(job.target)):
        record.hints.append(hint)
    walled = not _known_code_without_walls(job)
    hardware = hardware_of(targets.target(job.target), job.world_size)
    arms = []
    for name in ("reference", "candidate"):
        arm = Arm(
            name,
            world_size=job.world_size,
            threads=targets.threads_per_rank(job.world_size),
            limits=hardware.limits,
            walled=walled,
            hardware=hardware,
        )
        stack.callback(arm.stop)
        arms.append(arm)
    record.isolation = arms[-1].sandbox.isolation
    from evaluator.judge.evaluation import Evaluation  # imports torch, while the sandboxes do the same

    Evaluation(job, record, *arms).run(with_timing=with_timing, with_probes=with_probes)


def _known_code_without_walls(job: Job) -> bool:
    """True where the operator has said that there is no sandbox, and the file is one that comes with the project.

    Raises HarnessFault for any other file there, and for a ranked target: its results need walls.
    """
    if not demonstration.only():
        return False
    if not demonstration.is_demonstration(job.source):
        raise HarnessFault(demonstration.REFUSAL)
    if targets.target(job.target).ranked:
        raise HarnessFault(f"Nothing is evaluated without a sandbox for the ranked target {job.target}.")
    return True


def _check_job(job: Job, record: Record) -> None:
    """Raises HarnessFault for a job that this host cannot serve: that says nothing about the submission."""
    try:
        target = targets.target(job.target)
        entry = registry.find(job.problem_id)
    except KeyError as error:
        raise HarnessFault(str(error.args[0])) from error
    record.problem_digest = registry.digest(entry)
    if job.problem_digest and job.problem_digest != record.problem_digest:
        raise HarnessFault(
            f"This host has another version of problem {entry.id} (digest {record.problem_digest[:12]}) than the job "
            f"asks for ({job.problem_digest[:12]})."
        )
    refusal = target.refusal(world_size=job.world_size, precision=job.precision) or targets.host_refusal(target)
    if refusal:
        raise HarnessFault(refusal)
