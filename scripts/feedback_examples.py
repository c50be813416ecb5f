"""Writes the examples in docs/feedback.md anew: parts of real reports on files of the judge's tests.

python -m scripts.feedback_examples
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

from evaluator.contract import Job, Limits, Report
from evaluator.judge import evaluate

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "feedback.md"
KERNELS = ROOT / "tests" / "evaluator" / "kernels"
EXAMPLE = re.compile(r"^```json (\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CALL_SECONDS = 5.0


def main() -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    DOCUMENT.write_text(EXAMPLE.sub(lambda found: example(found.group(1)), text), encoding="utf-8")


def example(name: str) -> str:
    """The fenced block of one kernel."""
    source = (KERNELS / f"{name}.py").read_text(encoding="utf-8")
    job = Job(
        attempt_id=uuid4(),
        problem_id=13,
        target="cpu-gloo",
        world_size=4,
        file_name="13_gemm_allreduce_pytorch.py",
        source=source,
        limits=Limits(call=CALL_SECONDS),
    )
    return f"```json {name}\n{shown(part_of(evaluate(job, with_timing=False)))}\n```"


def part_of(report: Report) -> dict[str, Any]:
    """What an agent looks at first: code, message, hints, the phase that failed, and the ranks in short."""
    whole = report.model_dump(mode="json")
    kept = {name: whole[name] for name in ("code", "decision", "message", "hints", "failure_id")}
    kept["phases"] = [phase for phase in whole["phases"] if phase["status"] == "failed"]
    for phase in kept["phases"]:
        phase["seconds"] = round(phase["seconds"], 2)
    names = ("rank", "reached", "primary", "line", "max_error", "bad_fraction", "pattern")
    kept["ranks"] = [{name: rank[name] for name in names} for rank in whole["ranks"]]
    return kept


def shown(value: dict[str, Any]) -> str:
    """JSON with one line for each entry of a list."""
    lines = []
    for name, content in value.items():
        if isinstance(content, list) and content:
            entries = ",\n".join(f"    {json.dumps(entry, ensure_ascii=False)}" for entry in content)
            lines.append(f"  {json.dumps(name)}: [\n{entries}\n  ]")
        else:
            lines.append(f"  {json.dumps(name)}: {json.dumps(content, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}"


if __name__ == "__main__":
    main()
