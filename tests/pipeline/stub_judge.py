"""Stands in for ``python -m evaluator judge``: keeps to its protocol and does what the submitted source asks for.

A source is a line "judge: WORD [ARGUMENT]". Every start is noted in the folder PKB_STUB_FOLDER, one file each.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from evaluator.contract import Code, Job, Phase, PhaseResult, Progress, Report


def main() -> None:
    job = Job.model_validate_json(sys.stdin.read())
    folder = Path(os.environ["PKB_STUB_FOLDER"])
    (folder / f"{job.attempt_id}.{os.getpid()}").write_text(str(job.attempt_number))
    word, _, argument = job.source.partition("judge: ")[2].strip().partition(" ")
    say(Progress(attempt_id=job.attempt_id, sequence=0, phase=Phase.TRIALS, done=1, total=5))
    if word == "sleep" or (word == "sleep_once" and job.attempt_number == 1):
        time.sleep(float(argument))
    elif word == "crash":
        print("CUDA driver is gone", file=sys.stderr)
        os._exit(3)
    elif word == "flood":
        while True:
            sys.stdout.write("x" * 65_536)
    elif word == "nonsense":
        print(json.dumps({"code": "correct"}))
        return
    code = Code(argument) if word == "code" else Code.CORRECT
    say(report(job, code))


def report(job: Job, code: Code) -> Report:
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
    )


def say(message: Progress | Report) -> None:
    print(message.model_dump_json(), flush=True)


if __name__ == "__main__":
    main()
