"""What a host says of itself: read from the driver and from files, without torch and without waiting for either."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from evaluator import gpus
from evaluator.contract import PROTOCOL_VERSION, suite_digest
from evaluator.worker import capabilities

QUERY = "570.86.15, NVIDIA H100 80GB HBM3\n" * 4
TOPOLOGY = """\
\tGPU0\tGPU1\tGPU2\tGPU3\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tNV18\tNV18\tNV18\t0-51\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNV18\t0-51\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tSYS\t52-103\t1\t\tN/A
GPU3\tNV18\tNV18\tSYS\t X \t52-103\t1\t\tN/A

Legend:
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes
"""


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """``nvidia-smi`` with these answers, by its first argument; an exception as the answer is raised."""
    answers: dict[str, Any] = {"--query-gpu=driver_version,name": QUERY, "topo": TOPOLOGY}

    def ask(name: str, command: list[str], *, seconds: float) -> subprocess.CompletedProcess[str]:
        answer = answers[command[1]]
        if isinstance(answer, Exception):
            raise answer
        return subprocess.CompletedProcess(command, 0, stdout=answer)

    monkeypatch.setattr(gpus, "ask", ask)
    return answers


def test_a_gpu_host_names_its_gpus_their_links_and_the_driver(driver: dict[str, Any]) -> None:
    hello = capabilities.hello("h100x4", "rack-7")
    assert hello.devices == ("NVIDIA H100 80GB HBM3",) * 4
    assert hello.topology == "NV18, SYS between 4 GPUs"
    assert hello.versions["driver"] == "570.86.15"
    assert (hello.host, hello.protocol_version) == ("rack-7", PROTOCOL_VERSION)


def test_a_driver_that_does_not_answer_keeps_no_worker_from_speaking(driver: dict[str, Any]) -> None:
    failure = gpus.GpusUnavailable("nvidia-smi did not end within 20 s.")
    driver.update(dict.fromkeys(driver, failure))
    hello = capabilities.hello("h100x4", "rack-7")
    assert "driver" not in hello.versions
    assert hello.topology == ""


def test_the_suite_is_that_of_the_manifest() -> None:
    problems = json.loads(capabilities.MANIFEST.read_text())["problems"]
    assert capabilities.hello("cpu-gloo", "a").suite_digest == suite_digest((p["id"], p["digest"]) for p in problems)


def test_a_target_that_this_release_does_not_know_is_refused() -> None:
    assert "There is no target 'abacus'" in capabilities.hello("abacus", "a").refuses


def test_a_host_without_the_suite_says_that_it_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(capabilities, "MANIFEST", tmp_path / "none.json")
    capabilities.problem_digests.cache_clear()
    try:
        assert capabilities.hello("cpu-gloo", "a").suite_digest == ""
    finally:
        capabilities.problem_digests.cache_clear()


def test_torch_is_named_and_not_imported() -> None:
    program = (
        "import sys\nfrom evaluator.worker import capabilities\n"
        "versions = capabilities.versions()\nassert 'torch' not in sys.modules\nprint(versions['torch'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip()
