"""Whether the GPUs of this host are as a job must find them: there, empty, without processes, and working.

The judge is a process of its own with a sandbox in it. Once it has ended nothing of ours uses a GPU, so whatever is
still on one was left behind, and a GPU that does not answer now was poisoned by what ran on it, or broke. The next
submission must not be judged on it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import structlog

from evaluator import gpus
from evaluator.contract import MAX_SENTENCE
from evaluator.gpus import Gpu, GpusUnavailable
from evaluator.targets import Target, host_refusal, targets

log = structlog.get_logger(__name__)

PROBE = (sys.executable, "-I", str(Path(__file__).with_name("gpu_probe.py")))
PROBE_SECONDS = 30.0  # it takes less than one; a driver that first has to start takes some for each GPU
AGAIN_SECONDS = 60.0
"""How long an unclean host waits between two looks."""
IDLE_BYTES = 1024**3
"""More than this is in use on no idle GPU; what is may be left over from before the worker started."""


class Cleanliness:
    """What the last look at the GPUs of a target found: ``finding`` is a sentence, or "" if they were clean.

    Nobody has looked at first, so the first ``look_again`` does. ``clock`` gives seconds.
    """

    def __init__(
        self,
        wanted: Target,
        *,
        probe: Sequence[str] = PROBE,
        probe_seconds: float = PROBE_SECONDS,
        clean_seconds: float = gpus.CLEAN_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.finding = "Its GPUs have not been looked at yet."
        self._wanted = wanted
        self._numbers = tuple(range(wanted.gpu_count))
        self._probe_command = [*probe, *map(str, self._numbers)]
        self._probe_seconds = probe_seconds
        self._clean_seconds = clean_seconds
        self._clock = clock
        self._looked: float | None = None
        self._idle: dict[int, Gpu] = {}

    def look_again(self) -> str:
        """Look if the GPUs were unclean and ``AGAIN_SECONDS`` have gone by since the last look."""
        waits = self._looked is not None and self._clock() - self._looked < AGAIN_SECONDS
        if self.finding and not waits:
            self._look("again", lambda: self._thorough(seconds=0))
        return self.finding

    def look_before_job(self) -> str:
        """A quick look, without the health probe: the last one was when the job before ended."""
        return self._look("before a job", lambda: self._left(seconds=0))

    def look_after_job(self) -> str:
        """Wait for the memory of the job that has ended, then try whether every GPU works."""
        return self._look("after a job", lambda: self._thorough(seconds=self._clean_seconds))

    def _look(self, moment: str, inspect: Callable[[], str]) -> str:
        began = self._clock()
        try:
            found = inspect()
        except GpusUnavailable as reason:
            found = str(reason)
        found = found[:MAX_SENTENCE]
        self._looked = self._clock()
        log.info("GPUs looked at", moment=moment, found=found, seconds=round(self._looked - began, 3))
        if found and found != self.finding:
            log.error("GPUs are unclean, no work is taken", reason=found)
        elif self.finding and not found:
            log.info("GPUs are clean, work is taken", before=self.finding)
        self.finding = found
        return found

    def _thorough(self, *, seconds: float) -> str:
        return host_refusal(self._wanted) or self._left(seconds=seconds) or self._health()

    def _left(self, *, seconds: float) -> str:
        if not self._idle:
            self._read()
        return gpus.left_behind(tuple(self._idle.values()), self._read, seconds=seconds)

    def _read(self) -> tuple[Gpu, ...]:
        """The target's GPUs now; the least memory that each was ever seen to use is what an idle one uses."""
        now = tuple(gpu for gpu in gpus.read() if gpu.index in self._numbers)
        for gpu in now:
            before = self._idle.get(gpu.index)
            least = min(gpu.used_bytes, before.used_bytes if before else IDLE_BYTES)
            self._idle[gpu.index] = replace(gpu, used_bytes=least)
        return now

    def _health(self) -> str:
        done = gpus.ask("The health probe of the GPUs", self._probe_command, seconds=self._probe_seconds)
        if done.returncode == 0:
            return ""
        said = " ".join((done.stdout + done.stderr).split())[-300:]
        return f"The health probe of the GPUs failed with status {done.returncode}. {said}".strip()


def of_target(name: str) -> Cleanliness | None:
    """What watches over the GPUs of the target of that name; None where it has none, or nobody knows it."""
    known = targets().get(name)
    return Cleanliness(known) if known is not None and known.device == "cuda" else None
