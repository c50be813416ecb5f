"""Targets as data: what ``targets.json`` says of each, and whether this host can serve it."""

from __future__ import annotations

import json
import os
import platform
from functools import cache
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from evaluator import gpus
from evaluator.contract import Precision

FILE = Path(__file__).with_name("targets.json")
CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
MEASURED_PEAKS = "PKB_MEASURED_PEAKS"
FALLBACK_CACHE_BYTES = 32 * 1024 * 1024


class Peaks(BaseModel):
    """Peaks of one device: dense flops per second by dtype, memory and link (per direction) in bytes per second.

    Empty ``flops``: nothing trustworthy is known, and neither a bound nor impossible times are claimed.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    flops: dict[str, float] = Field(default_factory=dict)
    hbm_bytes_per_second: Annotated[float, Field(ge=0)] = 0
    link_bytes_per_second: Annotated[float, Field(ge=0)] = 0
    last_level_cache_bytes: Annotated[int, Field(ge=0)] = 0
    origin: Literal["vendor", "measured"] = "vendor"
    """Measured rates (``python -m evaluator peaks``) give a bound and a utilisation, and never an impossible time."""

    @property
    def trustworthy(self) -> bool:
        return bool(self.flops) and self.hbm_bytes_per_second > 0 and self.link_bytes_per_second > 0


class Target(BaseModel):
    """Hardware that evaluations run on."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    name: str
    title: str
    device: Literal["cpu", "cuda"]
    gpu: str = ""
    world_size: int
    world_sizes: tuple[int, ...] = ()
    """All world sizes it can run; empty: only ``world_size``."""
    precisions: tuple[Precision, ...]
    process_group: Literal["gloo", "nccl", "emulated"]
    """The c10d backend between the ranks; ``emulated`` lets several of them share one GPU."""
    queue: str
    ranked: bool
    timed: bool = True
    """False where times say nothing: correctness is checked, and speed is not compared."""
    baselines: tuple[Literal["eager", "compile", "symm_mem"], ...] = ("eager",)
    """What a submission may be compared with: the strongest of these that runs on the host (``judge.baseline``)."""
    label: str = ""
    peaks: Peaks = Peaks()

    @property
    def gpu_count(self) -> int:
        """How many GPUs a job gets, those with the lowest numbers: one a rank, or one for all where it is emulated."""
        if self.device == "cpu":
            return 0
        return 1 if self.process_group == "emulated" else self.world_size

    def refusal(self, *, world_size: int, precision: Precision) -> str:
        """Why this target does not run such a job, as a sentence; "" if it does."""
        sizes = self.world_sizes or (self.world_size,)
        if world_size not in sizes:
            return f"The target {self.name} runs {_either(sizes)} ranks, not {world_size}."
        if precision not in self.precisions:
            return f"The target {self.name} runs {_either(self.precisions)}, not {precision}."
        return ""


def _either(values: tuple[object, ...]) -> str:
    return " or ".join(str(value) for value in values)


@cache
def targets() -> dict[str, Target]:
    """All targets by name, in the order of the file.

    Where no vendor's peaks are known, those measured on this host count, from the file that PKB_MEASURED_PEAKS names.
    Raises OSError or ValueError if that file cannot be read.
    """
    entries = json.loads(FILE.read_text(encoding="utf-8"))["targets"]
    known = {entry["name"]: Target.model_validate(entry) for entry in entries}
    file = os.environ.get(MEASURED_PEAKS)
    measured = json.loads(Path(file).read_text(encoding="utf-8")) if file else {}
    for name, entry in measured.items():
        if name in known and not known[name].peaks.trustworthy:
            peaks = Peaks.model_validate(entry["peaks"]).model_copy(update={"origin": "measured"})
            known[name] = known[name].model_copy(update={"peaks": peaks})
    return known


def target(name: str) -> Target:
    """The target of that name. Raises KeyError with a sentence that lists the names there are."""
    try:
        return targets()[name]
    except KeyError:
        raise KeyError(f"There is no target {name!r}; there are {', '.join(targets())}.") from None


def host_refusal(wanted: Target) -> str:
    """Why this host cannot serve the target, as a sentence; "" if it can."""
    if platform.system() != "Linux":
        return "Evaluations need Linux."
    return _gpu_refusal(wanted) if wanted.device == "cuda" else ""


def _gpu_refusal(wanted: Target) -> str:
    """Why the GPUs of this host are not those of the target; "" if they are."""
    try:
        found = gpus.read()
    except gpus.GpusUnavailable as reason:
        return f"The target {wanted.name} needs GPUs. {reason}"
    model = wanted.gpu.partition(" ")[0]
    fitting = [gpu for gpu in found if not model or model in gpu.name.split()]
    if len(fitting) >= wanted.gpu_count:
        return ""
    here = ", ".join(gpu.name for gpu in found) or "none"
    return f"The target {wanted.name} needs {wanted.gpu_count} {wanted.gpu or 'GPU'}; this host has {here}."


def last_level_cache_bytes(wanted: Target) -> int:
    """Size of the largest cache that repeated calls could hit."""
    if wanted.peaks.last_level_cache_bytes:
        return wanted.peaks.last_level_cache_bytes
    sizes = [_cache_size(path) for path in CACHES.glob("index*/size")]
    return max(sizes, default=FALLBACK_CACHE_BYTES)


def _cache_size(path: Path) -> int:
    text = path.read_text(encoding="ascii").strip()
    factor = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:], 1)
    return int(text.rstrip("KMG")) * factor


def cpus_of_ranks(world_size: int) -> list[list[int]]:
    """The CPUs of every rank: an equal share of ours, or one CPU for several ranks in turn where there are too few.

    Ranks that may run anywhere stay where a launch happened to put them, and two launches of one program then differ
    more than most programs do.
    """
    cpus = sorted(os.sched_getaffinity(0))
    share = len(cpus) // world_size
    if share == 0:
        return [[cpus[rank % len(cpus)]] for rank in range(world_size)]
    return [cpus[rank * share : (rank + 1) * share] for rank in range(world_size)]


def threads_per_rank(world_size: int) -> int:
    """OMP_NUM_THREADS of every rank, the same in both arms: the CPUs divided among the ranks."""
    return max(1, len(os.sched_getaffinity(0)) // world_size)
