"""Puts a prompt together from its sections."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from problems import details
from problems.hardware import Hardware
from problems.prompts import machine, task

BACKENDS = {"cuda": "CUDA", "triton": "Triton", "parallelkittens": "ParallelKittens", "pytorch": "PyTorch"}
PRECISIONS = ("bf16", "fp16", "fp32")
_HERE = Path(__file__).parent


class Refusal(ValueError):
    """There is no such prompt; the message says why, as a sentence."""


def refusal(entry: Mapping[str, Any], backend: str, precision: str, target: Hardware) -> str:
    """Why there is no prompt for this choice, as a sentence; "" if there is one."""
    if backend not in BACKENDS:
        return f"There is no backend {backend!r}; there are {', '.join(BACKENDS)}."
    if backend != "pytorch" and target.device != "cuda":
        return f"The backend {backend} needs GPUs, which the target {target.name} does not have; choose pytorch."
    if precision not in target.precisions:
        return f"The target {target.name} runs {' or '.join(target.precisions)}, not {precision}."
    reason = entry.get("world_sizes", {}).get(str(target.world_size), "")
    if reason:
        return f"Problem {entry['id']} is not defined for the {target.world_size} ranks of {target.name}: {reason}"
    return ""


def build(entry: Mapping[str, Any], backend: str, precision: str, target: Hardware) -> str:
    """The prompt as Markdown. ``entry`` is a problem of the manifest. Raises Refusal where the choice does not fit."""
    refused = refusal(entry, backend, precision, target)
    if refused:
        raise Refusal(refused)
    dtype = details.dtype_of_run(entry, precision)
    title = f"# {entry['title']}: a {BACKENDS[backend]} implementation for {target.title}"
    sections = [
        ("Task", task.summary(entry, backend, precision, target)),
        ("Signature", task.code(entry["signature"] + ":")),
        ("Reference", task.reference(entry)),
        ("Inputs and outputs", task.arguments(entry, dtype, target)),
        ("Rules", _text("rules.md")),
        ("This problem", task.particulars(entry, dtype)),
        ("Hardware", machine.describe(entry, precision, target)),
        (f"Backend: {BACKENDS[backend]}", _text(f"backends/{backend}.md")),
    ]
    if target.device == "cuda":
        sections.append(("Symmetric memory", _symmetric_memory()))
        if backend in ("cuda", "parallelkittens"):
            sections.append(("utils.cuda_helpers", _text("cuda_helpers.md")))
        sections += [
            ("Example: overlap", _example("distances", backend)),
            ("Example: fusion", _example("centre", backend)),
        ]
    sections.append(("Output", task.output(entry, backend)))
    return "\n\n".join([title, *(f"## {heading}\n\n{body.strip()}" for heading, body in sections)]) + "\n"


def as_json_line(entry: Mapping[str, Any], backend: str, precision: str, target: Hardware) -> str:
    """The prompt as a line of JSONL; ``digest`` is that of the problem version. Raises Refusal like ``build``."""
    line = {
        "id": entry["id"],
        "slug": entry["slug"],
        "backend": backend,
        "precision": precision,
        "hardware": target.name,
        "digest": entry["digest"],
        "prompt": build(entry, backend, precision, target),
    }
    return json.dumps(line, ensure_ascii=False) + "\n"


def _symmetric_memory() -> str:
    return "`import torch.distributed._symmetric_memory as symm_mem`:\n\n" + _text("symmetric_memory.md")


def _example(name: str, backend: str) -> str:
    """A file that answers another, made-up task."""
    return f"It answers another task, to show the technique.\n\n{task.code(_text(f'examples/{name}_{backend}.py'))}"


@cache
def _text(name: str) -> str:
    folder = _HERE if name.startswith("examples/") else _HERE / "texts"
    return (folder / name).read_text(encoding="utf-8")
