"""What this host is: devices, links, versions of everything that decides a verdict. Imports no torch."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import platform
import re
from functools import cache
from importlib import metadata
from pathlib import Path

import structlog

from evaluator import gpus, targets
from evaluator.contract import MAX_RANKS, PROTOCOL_VERSION, Hello, suite_digest

log = structlog.get_logger(__name__)

ROOT = Path(__file__).resolve().parents[2]
MANIFEST = ROOT / "problems" / "suite" / "manifest.json"
PACKAGES = ("torch", "triton", "celery", "kombu", "redis", "pydantic")


def hello(target: str, host: str) -> Hello:
    """What the worker says of itself. Asks the driver, so call it once, not in the middle of a timing."""
    driver, devices = _gpus() if _is_cuda(target) else ("", ())
    return Hello(
        target=target,
        host=host,
        protocol_version=PROTOCOL_VERSION,
        suite_digest=suite_digest(problem_digests().items()),
        versions={**versions(), **({"driver": driver} if driver else {})},
        devices=(devices or (_cpu(),))[:MAX_RANKS],
        topology=_topology() if devices else "",
        refuses=_refusal(target),
    )


def versions() -> dict[str, str]:
    """Versions of what decides a verdict; what is not installed is left out."""
    found = {"code": code_digest()[:12], "python": platform.python_version(), "kernel": platform.release()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    for distribution in metadata.distributions():
        if re.match(r"nvidia-nccl-cu\d+$", distribution.name or ""):
            found["nccl"] = distribution.version
    if cuda := _cuda_of_torch():
        found["cuda"] = cuda
    return found


@cache
def problem_digests() -> dict[int, str]:
    """Digest of every problem version that this host has, by problem. Empty if the suite is not installed here."""
    try:
        problems = json.loads(MANIFEST.read_text(encoding="utf-8"))["problems"]
    except (OSError, ValueError, KeyError) as error:
        log.error("the suite's manifest cannot be read", path=str(MANIFEST), error=str(error))
        return {}
    return {problem["id"]: problem["digest"] for problem in problems}


@cache
def code_digest() -> str:
    """sha256 over the files of the evaluator: two hosts with the same digest judge alike."""
    digest = hashlib.sha256()
    for file in sorted((ROOT / "evaluator").rglob("*.py")):
        digest.update(f"{file.relative_to(ROOT)}\n".encode() + file.read_bytes())
    return digest.hexdigest()


def _refusal(target: str) -> str:
    try:
        return targets.host_refusal(targets.target(target))
    except KeyError as error:
        return str(error.args[0])


def _is_cuda(target: str) -> bool:
    known = targets.targets().get(target)
    return known is not None and known.device == "cuda"


def _gpus() -> tuple[str, tuple[str, ...]]:
    """Version of the driver and the model of every GPU; ("", ()) if the driver does not answer."""
    lines = _nvidia_smi("--query-gpu=driver_version,name", "--format=csv,noheader").splitlines()
    rows = [line.split(", ", 1) for line in lines if ", " in line]
    return (rows[0][0] if rows else ""), tuple(name.strip() for _, name in rows)


def _topology() -> str:
    """The kinds of links in the driver's matrix, such as "NV18" where every pair has 18 NVLinks."""
    rows = [line.split() for line in _nvidia_smi("topo", "-m").splitlines() if re.match(r"GPU\d+\s", line)]
    links = {cell for row in rows for cell in row[1 : len(rows) + 1] if cell != "X"}
    return f"{', '.join(sorted(links))} between {len(rows)} GPUs" if links else ""


def _nvidia_smi(*arguments: str) -> str:
    """What the driver's tool prints; "" if it does not answer, since a worker must be able to say that it is there."""
    try:
        return gpus.nvidia_smi(*arguments)
    except gpus.GpusUnavailable as error:
        log.error("the driver does not answer", error=str(error))
        return ""


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE)
    except OSError:
        found = None
    return (found[1] if found else platform.machine() or "CPU")[:200]


def _cuda_of_torch() -> str:
    """The CUDA version that torch was built for, read from its file: importing torch takes seconds and memory."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return ""
    text = (Path(spec.origin).parent / "version.py").read_text(encoding="utf-8")
    found = re.search(r"^cuda(?:: [^=]+)? = '([\d.]+)'", text, re.MULTILINE)
    return found[1] if found else ""
