"""Stands in for ``python -m evaluator judge``: keeps to its protocol and does what the submitted source asks for.

A source is a line "judge: WORD [ARGUMENT]". Every start is noted in the folder PKB_STUB_FOLDER, one file each. Canaries
pass unless a file "canaries fail" lies there.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from evaluator.contract import BlockPair, Code, Interval, Job, Phase, PhaseResult, Progress, Report, Timing

TIMING = Timing(
    pairs=(BlockPair(reference=(1e-3,), candidate=(1e-3,), reference_first=True),),
    calls_per_block=1,
    warmup_calls=1,
    looks=1,
    decision_interval=Interval(estimate=1.0, low=0.9, high=1.1),
    smallest_detectable=1.1,
    reference_seconds=1e-3,
    candidate_seconds=1e-3,
)


def main() -> None:
    job = Job.model_validate_json(sys.stdin.read())
    folder = Path(os.environ["PKB_STUB_FOLDER"])
    (folder / f"{job.attempt_id}.{os.getpid()}").write_text(str(job.attempt_number))
    word, _, argument = job.source.partition("judge: ")[2].strip().partition(" ")
    say(Progress(attempt_id=job.attempt_id, sequence=0, phase=Phase.TRIALS, done=1, total=5))
    if word == "sleep" or (word == "sleep_once" and job.attempt_number == 1):
        time.sleep(float(argument))
    elif word == "poison":  # the GPU of tests/gpu_host.py
        Path(os.environ["FAKE_CUDA"]).write_text("poisoned")
    if "crash" in (word, argument):
        print("CUDA driver is gone", file=sys.stderr)
        os._exit(3)
    if word == "flood":
        while True:
            sys.stdout.write("x" * 65_536)
    elif word == "nonsense":
        print(json.dumps({"code": "correct"}))
        return
    code = Code(argument) if word == "code" else Code.CORRECT
    if job.canary and not (folder / "canaries fail").exists():
        say(report(job, Code.CORRECT, speedup=Interval(estimate=1.0, low=0.9, high=1.1), timing=TIMING))
    else:
        say(report(job, Code.WRONG_VALUES if job.canary else code))


def report(job: Job, code: Code, **measured: Any) -> Report:
    return Report(
        attempt_id=job.attempt_id,
        problem_id=job.problem_id,
        problem_digest=job.problem_digest,
        target=job.target,
        world_size=job.world_size,
        precision=job.precision,
        code=code,
        message=f"The stub says {code}.",
        phases=(PhaseResult(phase=Phase.STATIC, status="passed"),),
        seconds=0.1,
        **measured,
    )


def say(message: Progress | Report) -> None:
    print(message.model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
