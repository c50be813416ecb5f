"""The way of a call where tensors do not lie in shared memory, tried on the CPU: hide, load, unlock, call, save.

The same kernels, the same verdicts, and once more with the process groups that emulated targets have.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal
from uuid import uuid4

import pytest

import evaluator.judge
import evaluator.judge.hardware
from evaluator.contract import Job, Limits
from evaluator.judge import evaluate
from evaluator.judge.hardware import Hardware
from evaluator.sandbox import ResourceLimits

pytestmark = pytest.mark.sandbox

FOLDER = Path(__file__).parent / "kernels"
KERNELS = [
    "mutates_input",
    "output_aliases_input",
    "returns_previous_output",
    "replaces_lists",
    "honest_strided_output",
]
MiB = 1024**2


@pytest.mark.parametrize("process_group", ["gloo", "emulated"])
@pytest.mark.parametrize("name", ["reference_as_submission", *KERNELS])
def test_kernel_gets_its_verdict(
    name: str, process_group: Literal["gloo", "emulated"], monkeypatch: pytest.MonkeyPatch
) -> None:
    hardware = Hardware(process_group=process_group, mirrored=True)
    monkeypatch.setattr(evaluator.judge, "hardware_of", lambda target, world_size: hardware)
    monkeypatch.setattr(evaluator.judge.hardware, "CPU_LIMITS", ResourceLimits(memory_bytes=2048 * MiB))
    source = (FOLDER / f"{name}.py").read_text(encoding="utf-8")
    wanted = dict(re.findall(r"^# (\w+): (.+)$", source, re.MULTILINE))
    report = evaluate(
        Job(
            attempt_id=uuid4(),
            problem_id=int(wanted.get("problem", 13)),
            target="cpu-gloo",
            world_size=2,
            file_name="kernel.py",
            source=source,
            limits=Limits(call=10, timing=3),
        ),
        with_timing=name == "reference_as_submission",
    )
    assert re.fullmatch(wanted["expect"], report.code), report.message
