"""The GPUs of this host as the driver's tool describes them: state, clocks, what slows them, what a job left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

QUERY_SECONDS = 20.0
DEATH_SECONDS = 5.0  # for a killed process to go; one that is stuck in the driver does not
FIELDS = "index,name,driver_version,compute_cap,memory.total,memory.used,clocks.sm,clocks.max.sm,temperature.gpu"
REASONS = "clocks_event_reasons.active"
MiB = 1024**2

# Bits of REASONS that make a GPU slower than it could be under the load it has (NVML's nvmlClocksEventReasons).
SLOWING = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
LEFT_BYTES = 64 * MiB
"""Memory that may still be in use beyond what was before a job: the driver's own, which varies."""
CLEAN_SECONDS = 60.0
"""How long the driver may take to give the memory of a killed job back: longer while a kernel of it spins."""
LONGEST_STEP = 2.0  # seconds between two looks at what is left


class GpusUnavailable(RuntimeError):
    """The driver's tool is missing, does not answer or answers in another way, in one sentence."""


@dataclass(frozen=True)
class Gpu:
    """State of one GPU. Memory in bytes, clocks in MHz, temperature in degrees Celsius; ``capability`` as "9.0"."""

    index: int
    name: str
    driver: str
    capability: str
    memory_bytes: int
    used_bytes: int
    sm_clock: int
    max_sm_clock: int
    temperature: int
    slowed_by: tuple[str, ...]


_stuck: list[subprocess.Popen[str]] = []
"""Processes that were killed and are still there."""


def ask(name: str, command: Sequence[str], *, seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a program that talks to the driver; ``name`` is what sentences call it.

    Raises GpusUnavailable if it cannot be started or does not end within ``seconds``. It is killed then, but not waited
    for: a process that is stuck in a broken driver may never die. While there is such a one, no other is started.
    """
    _bury()
    if _stuck:
        raise GpusUnavailable(f"The driver does not answer: process {_stuck[0].pid} was killed and is stuck in it.")
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except FileNotFoundError:
        raise GpusUnavailable(f"There is no {name}.") from None
    except OSError as error:
        raise GpusUnavailable(f"{name} cannot be started: {error}.") from error
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        raise GpusUnavailable(f"{name} did not end within {seconds:g} s.") from None
    except BaseException:
        _kill(process)
        raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    try:
        process.communicate(timeout=DEATH_SECONDS)
    except subprocess.TimeoutExpired:
        _stuck.append(process)


def _bury() -> None:
    """Take leave of the processes that have gone after all."""
    for process in [process for process in _stuck if process.poll() is not None]:
        _stuck.remove(process)
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def nvidia_smi(*arguments: str) -> str:
    """What the driver's tool prints. Raises GpusUnavailable."""
    done = ask("nvidia-smi", ["nvidia-smi", *arguments], seconds=QUERY_SECONDS)
    if done.returncode != 0:
        raise GpusUnavailable(f"nvidia-smi failed: {' '.join((done.stdout + done.stderr).split())[-200:]}")
    return done.stdout


def read() -> tuple[Gpu, ...]:
    """All GPUs of this host, in order of their numbers. Raises GpusUnavailable."""
    return parse(nvidia_smi(f"--query-gpu={FIELDS},{REASONS}", "--format=csv,noheader,nounits"))


def parse(text: str) -> tuple[Gpu, ...]:
    """GPUs from lines of comma-separated FIELDS and REASONS. Raises GpusUnavailable for other lines."""
    return tuple(sorted((_gpu(line) for line in text.splitlines() if line.strip()), key=lambda gpu: gpu.index))


def processes(numbers: Sequence[int]) -> tuple[str, ...]:
    """Who computes on the GPUs with these numbers, such as "4711 (python)". Raises GpusUnavailable.

    Machines that hide the processes of others, as containers do, show none.
    """
    chosen = f"--id={','.join(map(str, numbers))}"
    lines = nvidia_smi(chosen, "--query-compute-apps=pid,process_name", "--format=csv,noheader").splitlines()
    found = [line.strip().partition(", ") for line in lines]
    return tuple(sorted({f"{pid} ({Path(name).name})" for pid, _, name in found if pid.isdigit()}))


def _gpu(line: str) -> Gpu:
    try:
        cells = (cell.strip() for cell in line.split(","))
        index, name, driver, capability, total, used, clock, fastest, heat, reasons = cells
        return Gpu(
            index=int(index),
            name=name,
            driver=driver,
            capability=capability,
            memory_bytes=int(total) * MiB,
            used_bytes=int(used) * MiB,
            sm_clock=_number(clock),
            max_sm_clock=_number(fastest),
            temperature=_number(heat),
            slowed_by=slowed_by(_mask(reasons)),
        )
    except ValueError as error:
        raise GpusUnavailable(f"nvidia-smi describes a GPU in an unknown way: {line[:200]}") from error


def _number(cell: str) -> int:
    """A number, or 0 where the machine does not tell (virtual ones hide some)."""
    return 0 if cell in {"[N/A]", "[Not Supported]", "N/A"} else int(cell)


def _mask(cell: str) -> int:
    return int(cell, 16) if cell.startswith("0x") else _number(cell)


def slowed_by(mask: int) -> tuple[str, ...]:
    """What slows a GPU down, in words; idle clocks and an application's own setting do not count."""
    return tuple(words for bit, words in SLOWING.items() if mask & bit)


@dataclass(frozen=True)
class ClockLog:
    """States of the GPUs of a measurement, taken between its blocks."""

    samples: tuple[tuple[Gpu, ...], ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """One sentence for each GPU that something slowed down, or whose clock wandered by more than a tenth."""
        found = []
        for states in zip(*self.samples, strict=True):
            number = states[0].index
            reasons = sorted({reason for state in states for reason in state.slowed_by})
            if reasons:
                times = sum(bool(state.slowed_by) for state in states)
                found.append(f"GPU {number} was slowed down in {times} of {len(states)} looks: {', '.join(reasons)}.")
            clocks = [state.sm_clock for state in states if state.sm_clock]
            if clocks and min(clocks) < 0.9 * max(clocks):
                found.append(f"The clock of GPU {number} wandered between {min(clocks)} and {max(clocks)} MHz.")
        return tuple(found)


def left_behind(
    before: Sequence[Gpu],
    look: Callable[[], Sequence[Gpu]] = read,
    users: Callable[[Sequence[int]], Sequence[str]] = processes,
    *,
    seconds: float = CLEAN_SECONDS,
    sleep: Callable[[float], None] = time.sleep,
) -> str:
    """What a job has left on the GPUs that it had, memory or processes, as a sentence; "" if they are as ``before``.

    What killed processes had comes back with a delay: looks for up to ``seconds``, or once for 0, where no job has
    just ended. Raises GpusUnavailable.
    """
    waited, step = 0.0, 0.25
    while True:
        now = {gpu.index: gpu for gpu in look()}
        missing = [gpu.index for gpu in before if gpu.index not in now]
        if missing:
            return f"The driver does not list GPU {missing[0]} any more."
        found = _memory_held(before, now) or _users(users([gpu.index for gpu in before]))
        if not found:
            return ""
        if waited >= seconds:
            return f"{found} {f'{seconds:g} s after the job has ended' if seconds else 'although no job runs'}."
        sleep(step)
        waited, step = waited + step, min(2 * step, LONGEST_STEP)


def _memory_held(before: Sequence[Gpu], now: Mapping[int, Gpu]) -> str:
    held = [(now[gpu.index].used_bytes - gpu.used_bytes, gpu.index) for gpu in before]
    most, index = max(held, default=(0, 0))
    return f"{most / MiB:.0f} MiB on GPU {index} are in use" if most > LEFT_BYTES else ""


def _users(found: Sequence[str]) -> str:
    return f"Process {found[0]} uses a GPU" if found else ""
