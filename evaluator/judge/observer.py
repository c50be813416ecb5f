"""Extra calls of an arm under a profiler, after the verdict is clear. Nothing that happens in them changes it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Protocol

from evaluator.contract import Phase
from evaluator.judge.arm import Arm
from evaluator.judge.faults import Fault, HarnessFault
from evaluator.judge.launch import Launch
from evaluator.judge.layout import Encoded
from evaluator.judge.observations import Observation, parse
from evaluator.judge.trials import Ring
from evaluator.runner.wire import BadFrame

log = logging.getLogger(__name__)

WARM_CALLS = 2
CENSUS_CALLS = 3
PROFILE_CALLS = 5
CENSUS_BYTES = 1024**2
PROFILE_BYTES = 8 * 1024**2
MIN_CALL_SECONDS = 10.0  # budget of a call under the profiler, which starts up in the first


class Start(Protocol):
    """Starts the ranks of an arm with regions of these sizes in bytes."""

    def __call__(self, arm: Arm, *, source_bytes: int, target_bytes: int) -> Launch: ...


@dataclass
class Observer:
    """Observes calls on inputs that were drawn before."""

    launch: Start
    names: Sequence[str]
    inputs: Sequence[Sequence[Encoded]]
    """Encoded arguments of all ranks, for one call after the other."""
    source_bytes: int
    ready_seconds: float
    call_seconds: float
    scheduled: float = 0.0
    """Seconds of the calls that were made."""

    def observe(self, arms: Sequence[Arm], *, calls: int, record_bytes: int) -> list[list[Observation]] | None:
        """What the profiler saw on every rank of each arm; None, with a line in the log, where that did not work."""
        try:
            with ExitStack() as stack:
                launches = [stack.enter_context(self._start(arm, record_bytes)) for arm in arms]
                return [self._observed(launch, calls) for launch in launches]
        except (Fault, HarnessFault, BadFrame) as error:
            log.warning("no census: %s", error)
            return None

    def _start(self, arm: Arm, record_bytes: int) -> Launch:
        return self.launch(arm, source_bytes=self.source_bytes, target_bytes=record_bytes)

    def _observed(self, launch: Launch, calls: int) -> list[Observation]:
        launch.load(self.names, self.ready_seconds)
        ring = Ring(self.source_bytes)
        seconds = max(self.call_seconds, MIN_CALL_SECONDS)
        for number in range(WARM_CALLS + calls):
            if number == WARM_CALLS:
                launch.watch(seconds, Phase.CENSUS)
            inputs = self.inputs[number % len(self.inputs)]
            start = ring.place(max(rank.size for rank in inputs))
            launch.call(inputs, start, perturb=0, seconds=seconds, phase=Phase.CENSUS)
        self.scheduled += launch.scheduled
        return [parse(record) for record in launch.records(seconds, Phase.CENSUS)]
