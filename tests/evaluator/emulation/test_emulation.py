"""The emulated backend does what NCCL does: every operation on four ranks and their sub-groups, against all inputs.

The ranks are real processes (cases.py); on CUDA all of them share one device.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import cases

SIZE = 4  # ranks
SECONDS = 120


def run_ranks(folder: Path, device: str) -> list[dict[str, str]]:
    environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    ranks = []
    for rank in range(SIZE):
        arguments = [str(rank), str(SIZE), str(folder / "store"), device, str(folder / f"{rank}.json")]
        command = [sys.executable, "-W", "ignore", str(Path(cases.__file__)), *arguments]
        ranks.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    try:
        errors = [process.communicate(timeout=SECONDS)[1] for process in ranks]
    finally:
        for process in ranks:
            process.kill()
    assert [process.returncode for process in ranks] == [0] * SIZE, "\n".join(errors)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(SIZE)]


@pytest.fixture(scope="module")
def on_cpu(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    return run_ranks(tmp_path_factory.mktemp("emulation"), "cpu")


@pytest.fixture(scope="module")
def on_cuda(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    return run_ranks(tmp_path_factory.mktemp("emulation"), "cuda")


@pytest.mark.parametrize("case", cases.CASES)
def test_on_the_cpu(case: str, on_cpu: list[dict[str, str]]) -> None:
    for rank, results in enumerate(on_cpu):
        assert results[case] == "", f"rank {rank}: {results[case]}"


@pytest.mark.parametrize("case", cases.CASES)
def test_on_one_cuda_device(case: str, on_cuda: list[dict[str, str]]) -> None:
    for rank, results in enumerate(on_cuda):
        assert results[case] == "", f"rank {rank}: {results[case]}"
