"""What the ranks of an arm run on: the device of each, the process group between them, what the sandbox grants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from evaluator.sandbox import nvidia_devices
from evaluator.targets import Target


@dataclass(frozen=True)
class Hardware:
    """Devices of the ranks. ``numbers``: the GPU of every rank, several on one or each on its own; none on the CPU."""

    device: Literal["cpu", "cuda"] = "cpu"
    numbers: tuple[int, ...] = ()
    process_group: Literal["gloo", "nccl", "emulated"] = "gloo"
    mirrored: bool = False
    """True if tensors lie in a copy of the shared region: on every GPU, and on the CPU where a test wants it."""

    def device_of(self, rank: int) -> str:
        """The device that the rank's tensors are on, as torch writes it."""
        return "cpu" if self.device == "cpu" else f"cuda:{self.numbers[rank]}"

    @property
    def nodes(self) -> tuple[str, ...]:
        """Device nodes that a job needs."""
        return nvidia_devices(sorted(set(self.numbers))) if self.device == "cuda" else ()

    @property
    def environment(self) -> dict[str, str]:
        """Variables of every process of a job."""
        if self.device == "cpu":
            return {}
        shared = len(set(self.numbers)) < len(self.numbers)
        emulation = {
            "TORCH_SYMM_MEM_ALLOW_OVERLAPPING_DEVICES": "1",
            "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        }
        return {"NCCL_SOCKET_IFNAME": "lo", **(emulation if shared else {})}

    def command(self) -> dict[str, object]:
        """What the runner is told of it."""
        return {
            "device": self.device,
            "numbers": list(self.numbers),
            "process_group": self.process_group,
            "mirrored": self.mirrored,
        }


HOST = Hardware()


def hardware_of(target: Target, world_size: int) -> Hardware:
    """The hardware of a job on the target: one GPU a rank, or one for all where the target is emulated."""
    if target.device == "cpu":
        return HOST
    emulated = target.process_group == "emulated"
    numbers = (0,) * world_size if emulated else tuple(range(world_size))
    return Hardware("cuda", numbers, "emulated" if emulated else "nccl", mirrored=True)
