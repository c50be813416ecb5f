"""The profile for GPU jobs, on hosts that have a GPU."""

from __future__ import annotations

from pathlib import Path

import pytest

from evaluator.sandbox import Sandbox, SandboxSpec, nvidia_devices, python_command
from evaluator.sandbox.policy import GiB, ResourceLimits

PROGRAM = """
import os, torch
print(torch.ones(1000, device="cuda").sum().item())
print(sorted(name for name in os.listdir("/dev") if name.startswith("nvidia")))
"""


@pytest.mark.skipif(not Path("/dev/nvidia0").exists(), reason="this host has no NVIDIA GPU")
def test_cuda_starts_on_the_granted_device_alone() -> None:
    spec = SandboxSpec(
        argv=python_command("-W", "ignore", "-c", PROGRAM),
        devices=nvidia_devices([0]),
        seccomp_profile="cuda",
        limits=ResourceLimits(memory_bytes=32 * GiB),
    )
    with Sandbox.start(spec) as sandbox:
        assert sandbox.wait(120) == 0, sandbox.output()
        assert sandbox.output().splitlines() == ["1000.0", "['nvidia-uvm', 'nvidia0', 'nvidiactl']"]
        assert sandbox.isolation.uid not in {None, 0}
